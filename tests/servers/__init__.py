"""Real servers that the tests start, use and clear away."""
