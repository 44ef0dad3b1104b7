"""The ledger: every measurement ever taken, each with its whole configuration; docs/ledger.md.

`Ledger` in `store.py` is the door for gates and for `cutover bench`: `record`, `latest`, `tau`.
"""
