"""Builds hook.cc for the TensorFlow that is installed, once, into a cache that every process shares.

Runs without the package too (setup.py does so). The cache is `$NPU_SHIM_CACHE`, or `npu_shim` below `$XDG_CACHE_HOME`
or `~/.cache`; a file's name holds the TensorFlow version and a hash of the source and flags, so nothing stale is ever
loaded.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook.cc")


class BuildError(RuntimeError):
    """The hook cannot be built; the message names the fix."""


def cache_folder():
    """Folder of the built hooks (str); it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("NPU_SHIM_CACHE") or os.path.join(base, "npu_shim")


def compiler():
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
        "or 'gcc-c++'), or set CXX to a compiler's path" % (wanted or "g++, clang++ or c++")
    )


def command(output, source=SOURCE, libraries=()):
    """The compiler's command line for this TensorFlow (list of str), writing the shared object `output`."""
    import tensorflow as tf

    flags = tf.sysconfig.get_compile_flags()
    # TensorFlow 1.15 does not name its standard; later versions put theirs (C++14, C++17) into the flags
    standard = [] if any(f.startswith("--std") or f.startswith("-std") for f in flags) else ["-std=c++11"]
    # its headers have said which TensorFlow they are in different ways over time
    major, minor = tf.__version__.split(".")[:2]
    define = "-DNPU_SHIM_TF=%d" % (100 * int(major) + int(minor))
    link = tf.sysconfig.get_link_flags()
    where = ["-Wl,-rpath," + f[2:] for f in link if f.startswith("-L")]
    shared = [compiler(), "-O2", "-fPIC", "-shared", "-w", define, *standard, *flags, source, "-o", output]
    return [*shared, *link, *libraries, *where]


def path(source=SOURCE):
    """Path of what is built from a source for this TensorFlow (str), whether or not it is built."""
    import tensorflow as tf

    with open(source, "rb") as f:
        digest = hashlib.sha256(f.read())
    flags = tf.sysconfig.get_compile_flags() + tf.sysconfig.get_link_flags()
    digest.update(" ".join(flags).encode())
    stem = os.path.splitext(os.path.basename(source))[0]
    return os.path.join(cache_folder(), "%s-tf%s-%s.so" % (stem, tf.__version__, digest.hexdigest()[:12]))


def build(source=SOURCE, libraries=()):
    """Builds the hook, or another source, if its file is not there yet, and returns its path (str).

    Processes that start together wait for the one that builds; a failed build leaves nothing behind.

    Raises:
        BuildError: no compiler, or the compiler failed (its last lines are in the message).
    """
    target = path(source)
    if os.path.exists(target):
        return target
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(os.path.join(os.path.dirname(target), "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(target):
            _compile(target, source, libraries)
    return target


def _compile(target, source, libraries):
    handle, unfinished = tempfile.mkstemp(suffix=".tmp", dir=os.path.dirname(target))
    os.close(handle)
    try:
        line = command(unfinished, source, libraries)
        ran = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if ran.returncode:
            tail = ran.stdout.decode("utf-8", "replace").strip().splitlines()[-12:]
            raise BuildError("npu_shim: the session hook did not compile (see BUILD.md):\n" + "\n".join(tail))
        os.replace(unfinished, target)
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
