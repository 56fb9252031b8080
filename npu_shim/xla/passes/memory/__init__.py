"""Passes that decide what lives how long: reads before writes, updates in place, rematerialization."""
