"""Rewrites of the graph that a session runs, after the rewriter's; promises.py says what each may change."""
