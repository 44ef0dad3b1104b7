"""Pure: records, the table of legal moves, the rules, the plan, the invariants. No clock, no I/O, no log."""
