"""Servers that tests start themselves: databases, and what stands in the way to them."""
