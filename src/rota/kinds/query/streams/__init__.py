"""Streams: rounds of queries over rows that keep coming, with event time, state and checkpoints.

Decision 0017 says why it is like this.
"""
