"""The simulator as a test: fixed seeds, seeds that once failed, and proof that it can fail."""
