"""Queries: SQL is planned here by DataFusion, cut into stages, and written down as a graph of them.

Everything here needs `rota[query]`, and nothing of it is imported by a coordinator.
"""
