"""Flight SQL: statements of other people's drivers, translated to queries of a session. Needs the extra `query`.

It runs in a process of its own, and speaks to the coordinator with the token of whoever calls.
"""
