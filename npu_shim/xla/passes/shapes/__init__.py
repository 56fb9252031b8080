"""Passes that make shapes static, or refuse a step whose dynamic shapes XLA would compute wrongly."""
