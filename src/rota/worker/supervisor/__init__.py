"""The supervisor: a small process of its own that starts attempts, keeps their logs, and leaves none of them behind.

`driver` is the worker's end. Everything else here runs in the supervisor, which imports neither asyncio nor msgspec,
never runs user code and holds none of the worker's secrets. docs/decisions/0008-local-execution.md has the reasons.
"""
