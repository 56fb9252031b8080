"""Rewrites TensorFlow graphs to mixed precision: knows graphs, knows no session, no option name, no device brand."""
