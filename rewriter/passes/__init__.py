"""Passes over modules: what one is, pipelines of them, and the check of a module's structure between them."""
