"""Compiled programs in a folder: a later process loads what an earlier one compiled.

    lowered program, releases, device, settings  ->  hash  ->  FOLDER/HASH.program

A file appears whole or not at all and begins with its checksum; what is damaged or does not load is compiled anew and
replaced. (JAX has a cache of its own, jax_compilation_cache_dir: it is a setting of the whole process, which belongs to
the script, its files are written in place, and a damaged one stays.)

Who loads a program runs its code, so files of other users are left alone.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from typing import Any, BinaryIO, NamedTuple

from npu_shim.pjrt import jax_door, whole
from npu_shim.rewriter.errors import ConfigError

KEY, VARIABLE = "npu_shim_xla_cache", "NPU_SHIM_XLA_CACHE"
MARK = b"npu_shim program 1\n"  # the first bytes of a file
SUFFIX = ".program"


class Stored(NamedTuple):
    """A compiled program.

    Attributes:
        program: a compiled jax program.
        is_old: whether an earlier compilation was loaded.
        trouble: why the folder did not serve, "" if it did.
    """

    program: Any
    is_old: bool = False
    trouble: str = ""


def folder(asked: Any = None) -> str:
    """Returns the absolute path of the folder that is asked for, else of the environment's, "" for none."""
    path = (asked if isinstance(asked, str) else "") or os.environ.get(VARIABLE)
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def compiled(jax: Any, lowered: Any, device: Any, cache: str) -> Stored:
    """Compiles a lowered jax program, or loads it.

    Args:
        jax: the module.
        lowered: what `jax.jit(function).lower` returned.
        device: the jax device that it is for.
        cache: path of the folder, "" for none.
    """
    if not cache:
        return Stored(lowered.compile())
    path = os.path.join(cache, _name(jax, lowered, device) + SUFFIX)
    trouble = ""
    try:
        return Stored(_load(path, lowered, device), is_old=True)
    except FileNotFoundError:
        pass
    except Exception as reason:  # what a file of another release or device holds can fail in any way
        trouble = "'%s' cannot be used and is compiled anew: %s" % (path, _text(reason))
    made = lowered.compile()
    try:
        _store(path, made)
    except Exception as reason:  # the program is there all the same
        trouble = "a compiled program is not kept: %s" % _text(reason)
    return Stored(made, trouble=trouble)


def _name(jax: Any, lowered: Any, device: Any) -> str:
    """A hash of all that the compiled code depends on."""
    digest = hashlib.sha256()
    for text in (lowered.as_text(), *jax_door.target(jax, device)):
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()[:40]


def _load(path: str, lowered: Any, device: Any) -> Any:
    from jax.experimental import serialize_executable

    with open(path, "rb") as f:
        content = _checked(f)
    try:
        return serialize_executable.deserialize_and_load(
            content, lowered.in_tree, lowered.out_tree, device.client, [device]
        )
    except pickle.UnpicklingError as reason:
        raise ConfigError("it holds no program (%s)" % reason) from reason


def _checked(f: BinaryIO) -> bytes:
    """The content of a file. Raises ConfigError if it is another user's or damaged."""
    owner = os.fstat(f.fileno()).st_uid
    if owner not in (os.getuid(), 0):
        raise ConfigError("it belongs to another user (%d)" % owner)
    mark, checksum, content = f.read(len(MARK)), f.read(hashlib.sha256().digest_size), f.read()
    if mark != MARK or hashlib.sha256(content).digest() != checksum:
        raise ConfigError("it is damaged")
    return content


def _store(path: str, program: Any) -> None:
    from jax.experimental import serialize_executable

    content = serialize_executable.serialize(program)[0]
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with whole.file(path) as f:
        f.write(MARK + hashlib.sha256(content).digest())
        f.write(content)


def _text(reason: Exception) -> str:
    if isinstance(reason, ConfigError):
        return "; ".join(reason.problems)
    lines = str(reason).strip().splitlines()
    return lines[0] if lines else type(reason).__name__
