"""Compiled programs in a folder: a later process loads what an earlier one compiled.

    lowered program, releases, device, settings  ->  hash  ->  FOLDER/HASH.program

A file appears whole or not at all and begins with a checksum of its name and content; what is damaged, was written
under another name, or does not load is made anew and replaced. (JAX has a cache of its own, jax_compilation_cache_dir:
it is a setting of the whole process, which belongs to the script, its files are written in place, and a damaged one
stays.)

Who loads a program runs its code, so files of other users are left alone.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from typing import Any, NamedTuple, Sequence

from npu_shim.pjrt import atomic_write, jax_compat
from npu_shim.rewriter.errors import ConfigError

KEY, VARIABLE = "npu_shim_xla_cache", "NPU_SHIM_XLA_CACHE"
MARK = b"npu_shim program 2\n"  # the first bytes of a file
SUFFIX = ".program"


class Stored(NamedTuple):
    """A compiled program.

    Attributes:
        program: a compiled jax program.
        cache_hit: whether an earlier compilation was loaded.
        warning: why the folder did not serve, "" if it did.
    """

    program: Any
    cache_hit: bool = False
    warning: str = ""


def folder(asked: Any = None) -> str:
    """Returns the absolute path of the folder that is asked for, else of the environment's, "" for none."""
    path = (asked if isinstance(asked, str) else "") or os.environ.get(VARIABLE)
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def compiled(jax: Any, lowered: Any, devices: Sequence[Any], cache: str) -> Stored:
    """Compiles a lowered jax program, or loads it.

    Args:
        jax: the module.
        lowered: what `jax.jit(function).lower` returned.
        devices: the jax devices that it is for.
        cache: path of the folder, "" for none.
    """
    options = jax_compat.compiler_options(devices[0].platform, len(devices))
    if not cache:
        return Stored(lowered.compile(compiler_options=options))
    if jax.config.jax_compilation_cache_dir:  # of a program that JAX has loaded, a second copy lacks functions (0.12)
        text = "JAX's own cache of compiled programs is on ('%s') and is used in place of '%s'"
        warning = text % (jax.config.jax_compilation_cache_dir, cache)
        return Stored(lowered.compile(compiler_options=options), warning=warning)
    from jax.experimental import serialize_executable

    name, warning = _name(jax, lowered, devices[0]) + SUFFIX, ""
    try:
        return Stored(_loaded(read(cache, name), lowered, devices), cache_hit=True)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as reason:  # what a file of another release or device holds can fail in any way
        warning = unusable(cache, name, reason)
    executable = lowered.compile(compiler_options=options)
    try:
        write(cache, name, serialize_executable.serialize(executable)[0])
    except Exception as reason:  # the program is there all the same
        warning = not_kept(cache, reason)
    return Stored(executable, warning=warning)


def read(cache: str, name: str) -> bytes:
    """Returns what `write` wrote to a folder under a name.

    Raises:
        FileNotFoundError or NotADirectoryError: there is no such file.
        OSError or ConfigError: it cannot be read, is damaged, or another user's.
    """
    with open(os.path.join(cache, name), "rb") as f:
        owner = os.fstat(f.fileno()).st_uid
        if owner not in (os.getuid(), 0):
            raise ConfigError("it belongs to another user (%d)" % owner)
        mark, checksum, content = f.read(len(MARK)), f.read(hashlib.sha256().digest_size), f.read()
    if mark != MARK or _checksum(name, content) != checksum:
        raise ConfigError("it is damaged")
    return content


def write(cache: str, name: str, content: bytes) -> None:
    """Writes a file, which appears whole or not at all, to a folder, which is made if need be.

    Raises:
        OSError or ConfigError: it cannot be written.
    """
    os.makedirs(cache, mode=0o700, exist_ok=True)
    with atomic_write.file(os.path.join(cache, name)) as f:
        f.write(MARK + _checksum(name, content))
        f.write(content)


def _checksum(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def unusable(cache: str, name: str, reason: Exception) -> str:
    """Says that a file cannot be read."""
    return "'%s' cannot be used and is compiled again: %s" % (os.path.join(cache, name), _text(reason))


def not_kept(cache: str, reason: Exception) -> str:
    """Says that a file cannot be written, in the same words for all files of a folder."""
    return "compiled programs are not kept in '%s': %s" % (cache, _text(reason))


def _name(jax: Any, lowered: Any, device: Any) -> str:
    """A hash of all that the compiled code depends on."""
    digest = hashlib.sha256()
    for text in (lowered.as_text(), *jax_compat.target(jax, device)):
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()[:40]


def _loaded(content: bytes, lowered: Any, devices: Sequence[Any]) -> Any:
    from jax.experimental import serialize_executable

    given = (lowered.in_tree, lowered.out_tree, devices[0].client, devices)
    try:
        return serialize_executable.deserialize_and_load(content, *given)
    except pickle.UnpicklingError as reason:
        raise ConfigError("it holds no program (%s)" % reason) from reason


def _text(reason: Exception) -> str:
    cause = reason.__cause__ if isinstance(reason, ConfigError) and reason.__cause__ is not None else reason
    if isinstance(cause, FileExistsError):
        return "it is not a folder"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    lines = ("; ".join(reason.problems) if isinstance(reason, ConfigError) else str(reason)).strip().splitlines()
    return lines[0] if lines else type(reason).__name__
