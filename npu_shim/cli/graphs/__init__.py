"""Commands that take a graph: what a precision mode, the passes or a card make of it."""
