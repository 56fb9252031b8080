"""What hosts tell each other before they run a program together, and what of it differs. No TensorFlow, no JAX."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, Collection, Mapping, Sequence

import numpy as np

from npu_shim.pjrt import arrays

EDGE = 1 << 15  # bytes at either end of a large value that are compared
INPUT = (
    "%s and %s are fed different values of '%s' in %s: every host has the same input, and feeds its part of it: give "
    "seeds to what the script draws (tf.set_random_seed, numpy.random.seed, random.seed, the seed of shuffle)"
)

OPEN = "leave its first dimension open (placeholders of shape [None, ...], batch() without drop_remainder)"
FIXED = "%s and %s are fed different values of '%s' in %s, which is no part of a batch there: " + OPEN


def told(
    run: str,
    exchanges: Sequence[str] | None,
    feeds: Sequence[Mapping[str, Any]],
    missing: Sequence[str],
    own: Collection[str] = (),
) -> dict[str, Any]:
    """Returns what a host tells of a run, which JSON can hold.

    Args:
        run: it in a few words.
        exchanges: what its program exchanges, in order; None where the host has no program.
        feeds: of each step, dict of tensor name to value.
        missing: names of the variables that are brought to the devices first.
        own: names of the feeds of which each host gives rows of its own.
    """
    return {
        "run": run, "ready": exchanges is not None, "feeds": [_fed(given, own) for given in feeds],
        "variables": sorted(missing), "exchanges": _hash(exchanges or ()),
    }  # fmt: skip


def different(names: Sequence[str], rows: Sequence[Mapping[str, Any]], ready: bool, own_input: bool = False) -> str:
    """What differs between the first host and another one, in words; "" where nothing does.

    Args:
        names: of the hosts.
        rows: what each has brought.
        ready: whether all have a program.
        own_input: whether each host has an input of its own.
    """
    first = rows[0]
    for name, row in zip(names[1:], rows[1:]):
        why = _different((names[0], name), first, row, ready, FIXED if own_input else INPUT)
        if why:
            return why
    return ""


def _different(pair: tuple[str, str], first: Mapping[str, Any], row: Mapping[str, Any], ready: bool, fed: str) -> str:
    run = first["run"]
    if row["run"] != run:
        words = pair[0], run, pair[1], row["run"]
        return "%s is at %s, and %s at %s: all hosts must come to the same runs in one order" % words
    if len(row["feeds"]) != len(first["feeds"]):
        return "%s and %s are at different steps of %s: the input of one of them has ended" % (*pair, run)
    for own, other in zip(first["feeds"], row["feeds"]):
        why = _fed_differently(pair, run, own, other, fed)
        if why:
            return why
    if ready and any(row[part] != first[part] for part in ("variables", "exchanges")):
        text = "%s and %s have different programs of %s: their graphs, or their releases of JAX, differ"
        return text % (*pair, run)
    return ""


def _fed_differently(
    pair: tuple[str, str], run: str, first: Mapping[str, Any], other: Mapping[str, Any], fed: str
) -> str:
    for name, (shape, digest) in first.items():
        theirs, digest_there = other[name]
        if theirs != shape:
            words = run, name, shape, pair[0], theirs, pair[1]
            return "in %s, '%s' has shape %s on %s, and %s on %s: batches must have one size" % words
        if digest_there != digest:
            return fed % (*pair, name, run)
    return ""


def _fed(given: Mapping[str, Any], own: Collection[str]) -> dict[str, Any]:
    """Shape and digest of each value that is fed; of what may differ, no digest."""
    return {name: [list(np.shape(value)), 0 if name in own else _digest(value)] for name, value in given.items()}


def _digest(value: Any) -> int:
    """A number of a value's bytes; of a large one, of both ends."""
    if not isinstance(value, (np.ndarray, np.generic, int, float, bool, list, tuple, arrays.Uncast)):
        return 0  # it stays on the device
    array = np.ascontiguousarray(value)
    text: Any = repr(array.tolist()).encode() if array.dtype == object else array.view(np.uint8).reshape(-1)
    if len(text) <= 2 * EDGE:
        return zlib.crc32(text)
    return zlib.crc32(text[-EDGE:], zlib.crc32(text[:EDGE]))


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
