"""Drops lines from a program for as long as it still shows the same kind of difference."""

import re

SIMPLER = (
    (r"update\(u\d+,", "update(None,"),
    (r"matrix\(\d+, (\w+).*?\)", r"read(\1)"),
    (r"product\((\w+), [^)]*\)", r"product(\1)"),
    (r"python\((product\([^)]*\))\)", r"\1"),
    (r"\[(v\d+), [^\]]*\]", r"[\1]"),
    (", counted=True", ""),
    (r"tf.train.\w+Optimizer\(.*\)$", "tf.train.GradientDescentOptimizer(1.0)"),
    (r"lambda m: minimize.*", "lambda m: tf.assign_add(v0, m))"),
)


def shrunk(program, fails):
    """Returns a smaller program that still fails.

    Args:
        program: drawing.Program.
        fails: function of a Program that says whether it still shows the difference.
    """
    while True:
        smaller = next((candidate for candidate in _smaller(program) if fails(candidate)), None)
        if smaller is None:
            return program
        program = smaller


def _smaller(program):
    """Programs with a line less, or with something simpler in a line."""
    lines, runs = program.lines, program.runs
    for k in range(len(runs) - 1, -1, -1):
        yield program._replace(runs=runs[:k] + runs[k + 1 :])
    for k in range(len(lines) - 1, 0, -1):
        rest = lines[:k] + lines[k + 1 :]
        name = lines[k].partition(" = ")[0]
        yield program._replace(lines=tuple(re.sub(r"update\(%s," % name, "update(None,", line) for line in rest))
    for k, line in enumerate(lines):
        for simpler in _simpler(line):
            yield program._replace(lines=(*lines[:k], simpler, *lines[k + 1 :]))


def _simpler(line):
    """A line with a shorter expression in it."""
    for pattern, simple in SIMPLER:
        simpler = re.sub(pattern, simple, line)
        if simpler != line:
            yield simpler
