"""Builds the hook for the installed TensorFlow, once, into a cache that all processes share.

A wheel of `scripts/build_wheels` carries the hook built for one TensorFlow, in the folder `built` beside this file;
under another TensorFlow it is built as usual. The module runs without the package too (setup.py does so). The cache is
`$NPU_SHIM_CACHE`, or `npu_shim` below `$XDG_CACHE_HOME` or `~/.cache`. A file's name contains the TensorFlow version
and a hash of the sources and flags, so a stale file is never loaded.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from typing import Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
HOOK = tuple(os.path.join(HERE, name) for name in ("hook.cc", "kernels.cc", "arrivals.cc"))  # sources of its library
BUILT = os.path.join(HERE, "built")


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
        found = shutil.which(name)
        if found:
            return found
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


def command(
    output: str, sources: Sequence[str] = HOOK, libraries: Sequence[str] = (), portable: bool = False
) -> list[str]:
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
    return [*shared, *link, *libraries, *where]


def path(sources: Sequence[str] = HOOK) -> str:
    """Path of the library built from `sources` for this TensorFlow (str), whether or not it exists."""
    import tensorflow as tf

    flags = tf.sysconfig.get_compile_flags() + tf.sysconfig.get_link_flags()
    return _library_path(cache_folder(), sources, tf.__version__, flags)


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


def build(sources: Sequence[str] = HOOK, libraries: Sequence[str] = ()) -> str:
    """Builds the hook, or the library of other sources, unless it exists, and returns its path (str).

    A wheel's own library is used if it is for this TensorFlow. Processes that start together wait for the one that
    builds; a failed build leaves nothing behind.

    Raises:
        BuildError: no compiler, or the compiler failed (its last lines are in the message).
    """
    return carried(sources) if os.path.exists(carried(sources)) else _build_here(sources, libraries)


def load(sources: Sequence[str] = HOOK, libraries: Sequence[str] = ()) -> ctypes.CDLL:
    """Builds as `build`, and returns the loaded library (ctypes.CDLL).

    Raises:
        BuildError: as `build`.
    """
    built = build(sources, libraries)
    try:
        return ctypes.CDLL(built)
    except OSError:
        if built != carried(sources):
            raise
        # a wheel's library may need a newer C++ runtime than this machine has
        return ctypes.CDLL(_build_here(sources, libraries))


def _build_here(sources, libraries):
    target = path(sources)
    if os.path.exists(target):
        return target
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(os.path.join(os.path.dirname(target), "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(target):
            _compile(target, sources, libraries)
    return target


def build_for_wheel(folder: str, sources: Sequence[str] = HOOK, libraries: Sequence[str] = ()) -> None:
    """Builds the library that a wheel for this TensorFlow carries, into a folder.

    Raises:
        BuildError: as `build`.
    """
    os.makedirs(folder, exist_ok=True)
    _compile(carried(sources, folder), sources, libraries, portable=True)


def _compile(target, sources, libraries, portable=False):
    handle, unfinished = tempfile.mkstemp(suffix=".tmp", dir=os.path.dirname(target))
    os.close(handle)
    try:
        line = command(unfinished, sources, libraries, portable)
        ran = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if ran.returncode:
            tail = ran.stdout.decode("utf-8", "replace").strip().splitlines()[-12:]
            raise BuildError("npu_shim: the session hook did not compile (see BUILD.md):\n" + "\n".join(tail))
        os.replace(unfinished, target)
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
