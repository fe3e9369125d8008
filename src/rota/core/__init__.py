"""The pure core: states, rules and decisions, with no I/O, clock, chance or logging."""
