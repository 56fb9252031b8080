"""The C++ hook: its source, its build and its loader."""

from __future__ import annotations
