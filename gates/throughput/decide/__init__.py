"""Is a candidate fast enough? Pure functions from records to verdicts: no I/O, no clock, no chance.

`floors.judge_limit` asks against an absolute limit, `noninferiority.decide` against what is live. Why these rules, and
how often they are wrong: docs/throughput-statistics.md.
"""
