"""The ways in which a script is run: options of `npu-shim run`, and what is asked of the run besides ending well."""

import os
from typing import NamedTuple, Tuple


class Way(NamedTuple):
    """One way of running a script.

    Attributes:
        name: what tables, folders and the command line call it.
        options: of `npu-shim run`, before the script.
        lowers: the training graphs have to be lowered, in whatever mode the options come to.
        engine: more than half of the steps that write variables have to be taken by the engine.
        beside: name of the way whose losses this one's have to stay beside, or "".
        apart: how far they may be apart: |loss - other| <= apart * max(|other|, 1), for every step.
        python: environment variable that names the interpreter; "" for the one that this runs in.
    """

    name: str
    options: Tuple[str, ...] = ()
    lowers: bool = False
    engine: bool = False
    beside: str = ""
    apart: float = 0.0
    python: str = ""


# as the script itself asks, which is judged by the recipe's mode
OWN = Way("own")
FLOAT32 = Way("float32")
# bfloat16 keeps 8 bits: 0.4 % for each rounding; losses of a few steps of training
MIXED = Way("mixed", ("--precision-mode", "auto"), lowers=True, beside="float32", apart=0.1)
ENGINE = Way("engine", ("--engine", "pjrt"), engine=True, beside="float32", apart=0.1)
FLOAT16 = Way(
    "float16",
    ("--precision-mode", "allow_mix_precision", "--loss-scale", "auto"),
    lowers=True,
    beside="float32",
    apart=0.1,
)
# TensorFlow 1.15.5 itself, on Python 3.7: what the others are held against; a graph that counts its ops otherwise
# begins from other random numbers
REAL = Way("1.15.5", beside="float32", apart=1.0, python="NPU_SHIM_TF115")
WAYS = {way.name: way for way in (FLOAT32, MIXED, ENGINE, FLOAT16, REAL)}
THREE = (FLOAT32, MIXED, ENGINE)


def chosen_ways(text):
    """Returns the ways that a comma-separated text names; LookupError for one that is none or has no interpreter."""
    unknown = [name for name in text.split(",") if name not in WAYS]
    if unknown:
        raise LookupError("there is no way '%s', but %s" % (unknown[0], ", ".join(WAYS)))
    ways = [WAYS[name] for name in text.split(",")]
    missing = [way for way in ways if way.python and not os.environ.get(way.python)]
    if missing:
        raise LookupError("%s must name an interpreter for the way '%s'" % (missing[0].python, missing[0].name))
    return ways
