"""Between runs: which programs are compiled, which runs are steps, where each variable's newest value is."""
