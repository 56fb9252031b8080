"""Lint of a plan: the rules that find what float16 changes by more than rounding, as rows of one table."""
