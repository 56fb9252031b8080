"""Seeds at entrances: what differs, and the smallest script that still does."""

import contextlib
import pathlib
import re
import shutil
import tempfile

import conftest  # noqa: F401  imports tensorflow as the tests do
import sessions

from fuzz import entrances, playing, shrinking

REPEATS = 12  # of a program that differs, in plain TensorFlow


@contextlib.contextmanager
def _folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="fuzz_"))
    try:
        yield path
    finally:
        shutil.rmtree(str(path), ignore_errors=True)


@contextlib.contextmanager
def _ready():
    """Sessions whose config names NpuOptimizer go through it; the others are TensorFlow's own."""
    import npu_shim
    from npu_shim.session.interception import patch

    patch.activate()
    try:
        with sessions.control_flow(1):
            yield
    finally:
        npu_shim.unpatch()


def text(entrance, seed):
    """The script of a seed at an entrance."""
    program = entrances.ENTRANCES[entrance].draw(seed)
    lines = entrances.ENTRANCES[entrance].lines(program)
    return program.text if lines is None else lines.text


def all_of(names, seed):
    """Yields (name of an entrance, what differs there) for a seed."""
    with _ready(), _folder() as folder:
        known = {}  # of what entrances run: what plain TensorFlow gives
        for name in names:
            entrance = entrances.ENTRANCES[name]
            program = entrance.lines(entrance.draw(seed))
            if program is not None and program not in known:
                known[program] = entrance.plain(program, folder / ("plain" + name))
            told = [] if program is None else entrances.problems(name, program, folder / name, known[program])
            # what hangs keeps threads of TensorFlow, without which plain TensorFlow may hang too
            certain = any(": Hang" in line for line in told)
            sure = told and (certain or _has_one_answer(entrance, program, folder / "again", known[program]))
            yield name, told if sure else []


def _has_one_answer(entrance, program, folder, expected):
    """Whether plain TensorFlow gives the same with its own optimizations, which the oracle does without.

    Seed 1370 reads an int64 reference variable behind a write: in some sessions TensorFlow's arithmetic optimizer lets
    it read before the write (2.15.1), and never where that is off.
    """
    if entrance.plain is not entrances.plain:
        return True
    again = (entrances.optimized(program, expected, folder / str(number)) for number in range(REPEATS))
    return not any(playing.differences(program, trace, expected.trace, entrance.partly) for trace in again)


def differing(names, first, count):
    """What differs of `count` seeds at entrances, a line each."""
    return list(_lines(names, range(first, first + count)))


def first_difference(entrance, most):
    """What differs of the first of `most` seeds that does at an entrance, a line; None if none does."""
    return next(_lines([entrance], range(most)), None)


def _lines(names, seeds):
    for seed in seeds:
        for name, told in all_of(names, seed):
            if told:
                yield "seed %d at %s: %s" % (seed, name, told[0])


def smallest(entrance, seed):
    """The smallest script of a seed that differs at an entrance, and how."""
    with _ready():
        program = entrances.ENTRANCES[entrance].lines(entrances.ENTRANCES[entrance].draw(seed))
        kind = _kind(_told(entrance, program))
        smaller_program = shrinking.shrunk(program, lambda smaller: _kind(_told(entrance, smaller)) == kind)
        return "%s\n%s" % (smaller_program.text, "\n".join(_told(entrance, smaller_program)))


def _told(entrance, program):
    """What differs; [] for what plain TensorFlow does not run."""
    with _folder() as folder:
        try:
            expected = entrances.ENTRANCES[entrance].plain(program, folder / "plain")
        except Exception:
            return []
        return entrances.problems(entrance, program, folder / entrance, expected)


def _kind(told):
    """The kind of a difference: the words without names and numbers."""
    return re.sub(r"\d+|'.*?'|\[.*\]", "", re.sub(r"^\w+\.\w+\(.*?\): ", "", told[0])) if told else None
