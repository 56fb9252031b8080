"""The passes of a compiled step; pipeline.py lists them in their order, each with the reason for its place."""
