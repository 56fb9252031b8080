"""What lowering a step gives, kept in the folder for compiled programs: a later process need not trace it again.

It is found by a hash of its graph, its shapes and known values, the platform and the releases, as FOLDER/HASH.step.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import struct
from types import MappingProxyType
from typing import Any, Mapping, NamedTuple

import npu_shim
from npu_shim.pjrt import program_cache

SUFFIX = ".step"
LENGTH = struct.Struct("<q")  # of the answer as JSON, in front of it; the artifact follows
TUPLES = ("feeds", "asked", "assumed")  # fields which JSON makes lists of
SOURCES = ("step", "pjrt")  # packages whose code says what an artifact is


class Lowered(NamedTuple):
    """A step, lowered, or why not.

    Attributes:
        artifact: a StableHLO portable artifact: a function of the feeds, then the variables, in the order in which they
            were given; it returns the fetches, then the new values of `updated`.
        fetches: [name, dtype, shape] of each.
        updated: names of the variables that it writes to.
        refusal: why there is no artifact, "" if there is one.
        feeds: with a refusal: names of the feeds whose values, if they were known, might make it possible.
        asked: with a refusal: as of `refusals.Refusal`.
        assumed: of a step of several ranks: what it takes for granted of the others, in words.
        narrow: name of a feed -> the dtype in which it takes it, where that is not the graph's: `narrowing`.
    """

    artifact: bytes
    fetches: list[list[Any]]
    updated: list[str]
    refusal: str = ""
    feeds: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    narrow: Mapping[str, str] = MappingProxyType({})

    def answer(self) -> dict[str, Any]:
        """What JSON takes of it, without the artifact."""
        answer = {**self._asdict(), "narrow": dict(self.narrow)}
        del answer["artifact"]
        return answer


def of(content: bytes, asked: Mapping[str, Any], cache: str) -> tuple[Lowered, str]:
    """Lowers a step, or reads what an earlier process has lowered.

    Args:
        content: as of `lowering.lowered`.
        asked: its other arguments.
        cache: path of the folder, "" for none.

    Returns:
        (the step, why the folder did not serve or "")
    """
    if not cache:
        return _lowered(content, asked), ""
    name, trouble = _name(content, asked) + SUFFIX, ""
    try:
        return _unpacked(program_cache.read(cache, name)), ""
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as reason:  # a file can be damaged in any way
        trouble = program_cache.unusable(cache, name, reason)
    step = _lowered(content, asked)
    if not step.refusal:
        try:
            program_cache.write(cache, name, _packed(step))
        except Exception as reason:  # the step is there all the same
            trouble = program_cache.not_kept(cache, reason)
    return step, trouble


def _lowered(content: bytes, asked: Mapping[str, Any]) -> Lowered:
    from npu_shim.step import lowering  # imports all rules

    return lowering.lowered(content, **asked)


def _name(content: bytes, asked: Mapping[str, Any]) -> str:
    import jax

    digest = hashlib.sha256(json.dumps([asked, jax.__version__, _code()], sort_keys=True).encode())
    digest.update(content)
    return digest.hexdigest()[:40]


@functools.lru_cache(maxsize=None)
def _code() -> str:
    """A hash of the code that lowers steps: whoever works on it has the same release before and after."""
    digest = hashlib.sha256()
    folder = pathlib.Path(npu_shim.__file__).parent
    for path in sorted(path for package in SOURCES for path in (folder / package).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _packed(step: Lowered) -> bytes:
    text = json.dumps(step.answer()).encode()
    return LENGTH.pack(len(text)) + text + step.artifact


def _unpacked(content: bytes) -> Lowered:
    (length,), rest = LENGTH.unpack_from(content), content[LENGTH.size :]
    answer = json.loads(rest[:length].decode())
    answer.update((name, tuple(answer[name])) for name in TUPLES)
    return Lowered(rest[length:], **answer)
