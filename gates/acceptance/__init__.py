"""Gate `acceptance`: what a model behind an engine must get right before users meet it.

Two layers. *Invariants* (`gates.invariants`) hold for every answer that any check receives; *checks* (`register.py`)
ask something and add an expectation. How many answers decide a check, and how, is its rule (`check.py`).
"""
