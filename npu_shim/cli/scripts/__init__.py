"""Commands that take a script: they run it, tune it, or read it; and the engine that runs it."""
