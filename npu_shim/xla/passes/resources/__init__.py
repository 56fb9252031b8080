"""Passes that give a step explicit state: resource variables, stateless random ops, fetches that stay."""
