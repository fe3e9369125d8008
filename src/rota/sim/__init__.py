"""The simulator: the real machines in a seeded world of faults, with checkers after every step."""
