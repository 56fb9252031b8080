"""Builds the hook for the installed TensorFlow, once, into a cache that all processes share.

A wheel of `scripts/build_wheels` carries the hook built for one TensorFlow, in the folder `built` beside this file;
under another TensorFlow it is built as usual. The module runs without the package too (setup.py does so). The cache is
`$NPU_SHIM_CACHE`, or `npu_shim` below `$XDG_CACHE_HOME` or `~/.cache`. A file's name contains the TensorFlow version
and a hash of the sources and flags, so a stale file is never loaded.

Who loads a library runs its code. So one from the cache is loaded only if it and its folder belong to this user (or
root), and nobody else may write them. Where the folder does not, a folder of this user's in the temporary one serves
in its place, and a warning says so; a library that does not is built anew. (What a wheel carries is trusted as the rest
of the wheel is.)
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import hashlib
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from typing import Any, Iterator, Sequence

LOG = logging.getLogger("npu_shim")

HERE = os.path.dirname(os.path.abspath(__file__))
HOOK = tuple(os.path.join(HERE, name) for name in ("hook.cc", "kernels.cc", "arrivals.cc"))  # sources of its library
BUILT = os.path.join(HERE, "built")
UNFINISHED = ".tmp"  # what the name of a folder ends with in which a library is built


class _Terminated(BaseException):
    """SIGTERM has come while a library was built."""


class _Sigterm:
    """What a SIGTERM does: it raises `_Terminated`, where it has to wait at the end of the scope in which it waits."""

    def __init__(self) -> None:
        self._waits, self._came = False, False

    def comes(self, *_: Any) -> None:
        self._came = True
        if not self._waits:
            raise _Terminated

    @contextlib.contextmanager
    def waits(self) -> Iterator[None]:
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
        if self._came:
            raise _Terminated


class BuildError(RuntimeError):
    """The hook cannot be built; the message names the fix."""


def cache_folder() -> str:
    """Folder of the built hooks (str); it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("NPU_SHIM_CACHE") or os.path.join(base, "npu_shim")


def compiler() -> str:
    """Path of the C++ compiler: `$CXX`, or the first of g++, clang++, c++ on the PATH.

    Raises:
        BuildError: there is none.
    """
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "clang++", "c++"]:
        path = shutil.which(name)
        if path:
            return path
    raise BuildError(
        "npu_shim: no C++ compiler (%s) to build the session hook with; install g++ (for example the package 'g++' "
        "or 'gcc-c++'), or set CXX to a compiler's path%s" % (wanted or "g++, clang++ or c++", _name_other_wheel())
    )


def _name_other_wheel():
    """Returns the end of a message: the hooks of this installation are for another TensorFlow; "" if it has none."""
    import tensorflow as tf

    carried = (re.search("-tf([0-9.]+)-", os.path.basename(path)) for path in glob.glob(os.path.join(BUILT, "*.so")))
    minors = sorted({match.group(1) for match in carried if match})
    if not minors:
        return ""
    return "; or install npu_shim's wheel for TensorFlow %s, which is installed here: this one is for TensorFlow %s" % (
        _minor_version(tf),
        ", ".join(minors),
    )


def _minor_version(tf):
    return ".".join(tf.__version__.split(".")[:2])


def command(output: str, sources: Sequence[str] = HOOK, portable: bool = False) -> list[str]:
    """The compiler's command line for this TensorFlow (list of str), writing the shared object `output`.

    A portable object does not record where TensorFlow is installed; TensorFlow's libraries are loaded before it anyway.
    """
    import tensorflow as tf

    flags = tf.sysconfig.get_compile_flags()
    # TensorFlow 1.15 does not name its standard; later versions put theirs (C++14, C++17) into the flags
    standard = [] if any(f.startswith("--std") or f.startswith("-std") for f in flags) else ["-std=c++11"]
    # TensorFlow's headers have stated their version in different ways over time
    major, minor = _minor_version(tf).split(".")
    define = "-DNPU_SHIM_TF=%d" % (100 * int(major) + int(minor))
    link = tf.sysconfig.get_link_flags()
    where = [] if portable else ["-Wl,-rpath," + f[2:] for f in link if f.startswith("-L")]
    shared = [compiler(), "-O3", "-fPIC", "-shared", "-w", define, *standard, *flags, *sources, "-o", output]
    return [*shared, *link, *where]


def path(sources: Sequence[str] = HOOK) -> str:
    """Path of the library built from `sources` for this TensorFlow (str), whether or not it exists.

    Raises:
        BuildError: others may write the folder, and that in its place.
    """
    import tensorflow as tf

    flags = tf.sysconfig.get_compile_flags() + tf.sysconfig.get_link_flags()
    return _library_path(_trusted_folder(cache_folder()), sources, tf.__version__, flags)


def _trusted_folder(wanted: str) -> str:
    """Returns a folder, which it makes, or where others may write it, one of this user's alone."""
    own = os.path.join(tempfile.gettempdir(), "npu_shim-%d" % os.getuid())
    doubts = []
    for folder in (wanted, own):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        doubt = _doubt(folder)
        if not doubt:
            if doubts:
                LOG.warning("npu_shim: no library is built in or loaded from %s; it is in '%s'", doubts[0], folder)
            return folder
        doubts.append("'%s', which %s" % (folder, doubt))
    raise BuildError(
        "npu_shim: no library is built in or loaded from %s; set NPU_SHIM_CACHE to a folder that you alone may write"
        % " or ".join(doubts)
    )


def _doubt(place: str) -> str:
    """Says why someone else may have written a file or folder; "" where nobody can have."""
    about = os.stat(place)
    if about.st_uid not in (os.getuid(), 0):
        return "belongs to another user (%d)" % about.st_uid
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users may write (chmod go-w)"
    return ""


def carried(sources: Sequence[str] = HOOK, folder: str | None = None) -> str:
    """Path at which a wheel carries the library built from `sources` for this TensorFlow (str), if it does.

    Within a minor version of TensorFlow, the binary interface of the hook does not change.
    """
    import tensorflow as tf

    abi = [flag for flag in tf.sysconfig.get_compile_flags() if "CXX11_ABI" in flag]
    return _library_path(folder or BUILT, sources, _minor_version(tf), abi)


def _library_path(folder, sources, version, flags):
    digest = hashlib.sha256()
    for source in sources:
        with open(source, "rb") as f:
            digest.update(f.read())
    digest.update(" ".join(flags).encode())
    stem = os.path.splitext(os.path.basename(sources[0]))[0]
    return os.path.join(folder, "%s-tf%s-%s.so" % (stem, version, digest.hexdigest()[:12]))


def build(sources: Sequence[str] = HOOK) -> str:
    """Builds the hook, or the library of other sources, unless it exists, and returns its path (str).

    A wheel's own library is used if it is for this TensorFlow. Processes that start together wait for the one that
    builds. A build that fails or that SIGTERM ends leaves nothing behind; what SIGKILL leaves, the next build removes.

    Raises:
        BuildError: no compiler, or the compiler failed (its last lines are in the message); others may write the cache.
    """
    return carried(sources) if os.path.exists(carried(sources)) else _build_here(sources)


def load(sources: Sequence[str] = HOOK) -> ctypes.CDLL:
    """Builds as `build`, and returns the loaded library (ctypes.CDLL).

    Raises:
        BuildError: as `build`.
    """
    built = build(sources)
    try:
        return ctypes.CDLL(built)
    except OSError:
        if built != carried(sources):
            raise
        # a wheel's library may need a newer C++ runtime than this machine has
        return ctypes.CDLL(_build_here(sources))


def _build_here(sources):
    target = path(sources)
    if _is_there(target):
        return target
    folder = os.path.dirname(target)
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_there(target):
            for left in glob.glob(os.path.join(glob.escape(folder), "tmp*" + UNFINISHED)):  # by builds that were killed
                _remove(left)
            LOG.info("npu_shim: compiling the session hook, once for this TensorFlow; it may take a minute")
            _compile(target, sources)
    return target


def _is_there(library):
    return os.path.exists(library) and not _doubt(library)


def build_for_wheel(folder: str, sources: Sequence[str] = HOOK) -> None:
    """Builds the library that a wheel for this TensorFlow carries, into a folder.

    Raises:
        BuildError: as `build`.
    """
    os.makedirs(folder, exist_ok=True)
    _compile(carried(sources, folder), sources, portable=True)


def _compile(target, sources, portable=False):
    folder = tempfile.mkdtemp(suffix=UNFINISHED, dir=os.path.dirname(target))
    unfinished = os.path.join(folder, "library")
    with _to_its_end_on_sigterm() as sigterm:
        try:
            line = command(unfinished, sources, portable)
            # the compiler's own files are there too: a compiler that outlives this process has nowhere to write
            status, output = _ran(line, dict(os.environ, TMPDIR=folder), sigterm)
            if status:
                tail = output.decode("utf-8", "replace").strip().splitlines()[-12:]
                raise BuildError("npu_shim: the session hook did not compile (see BUILD.md):\n" + "\n".join(tail))
            os.chmod(unfinished, 0o755)  # whatever the umask says
            os.replace(unfinished, target)
        finally:
            _remove(folder)


def _ran(line, environment, sigterm):
    """Runs a command to its end, or to SIGTERM, which leaves nothing of it running; (status, what it printed)."""
    process = None
    try:
        with sigterm.waits():  # until Popen returns, nobody here knows whom to stop
            process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        output = process.communicate()[0]
    except BaseException:
        if process is not None:
            process.kill()
            process.wait()
        raise
    return process.returncode, output


def _remove(place: str) -> None:
    if os.path.isdir(place):
        shutil.rmtree(place, ignore_errors=True)
    else:
        os.unlink(place)


@contextlib.contextmanager
def _to_its_end_on_sigterm() -> Iterator[_Sigterm]:
    """Scope that SIGTERM leaves as an exception does, after which it does what it does outside.

    Python takes signals in its main thread alone: in another one the scope does nothing.
    """
    before: Any = signal.getsignal(signal.SIGTERM)
    sigterm = _Sigterm()
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield sigterm
        return

    signal.signal(signal.SIGTERM, sigterm.comes)
    try:
        yield sigterm
    except _Terminated:
        signal.signal(signal.SIGTERM, before)
        os.kill(os.getpid(), signal.SIGTERM)
        raise BuildError("npu_shim: SIGTERM has ended the build of the session hook") from None
    finally:
        signal.signal(signal.SIGTERM, before)
