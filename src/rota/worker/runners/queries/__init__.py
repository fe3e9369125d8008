"""Fragments of queries: what runs them in warm processes, and the exchange of rows between them.

Nothing of the engine is imported in the worker itself, and nothing else before the first fragment: most workers never
see one. `fragment` runs in the process.
"""
