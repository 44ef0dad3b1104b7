"""Why the numbers are what they are: pure functions from records to one record with a sentence each.

None of them is a verdict. They name what to look at: the law of the step time, a cliff and its known cause, the share
of the memory bandwidth, where two releases cross, requests that run in waves, stalls.
"""
