"""The C++ hook: its source, its build and its loader."""
