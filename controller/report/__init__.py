"""The morning report: one page that says what a night decided and why."""
