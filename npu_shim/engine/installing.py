"""Makes the environment of the engine's worker: JAX, of a release that works, on the newest Python for it.

The folder `options.engine.installation()` is a link to the environment, which is made whole and then linked.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Iterator, Sequence

from npu_shim.engine.device.worker.environments import is_used
from npu_shim.engine.device.worker.starting import Started
from npu_shim.options import engine as options
from npu_shim.pjrt import other_python
from npu_shim.rewriter.errors import ConfigError

# Python -> the newest release of JAX for it that was tried; the newest Python first
RELEASES = {(3, 13): "0.12.0.1", (3, 12): "0.12.0.1", (3, 11): "0.10.2"}
PACKAGES = {"cpu": "jax", "cuda12": "jax[cuda12]", "cuda13": "jax[cuda13]"}
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def install(kind: str, python: str | None = None) -> str:
    """Makes the environment, or makes it anew, and returns its interpreter's path.

    pip writes to standard output what it does.

    Args:
        kind: a key of PACKAGES.
        python: the interpreter to make it with, None for the newest that is found.

    Raises:
        ConfigError: there is no such interpreter, or pip cannot install JAX, or it does not work. What was there before
            stays.
    """
    link = options.installation()
    base = python or newest()
    package = "%s==%s" % (PACKAGES[kind], RELEASES[_suitable(base)])
    with _alone(os.path.dirname(link)):
        _remove_others(link)
        folder = tempfile.mkdtemp(prefix=os.path.basename(link) + ".", dir=os.path.dirname(link))
        try:
            _call([base, "-m", "venv", folder], "'%s' makes no environment: does it have the module venv?" % base)
            inner = os.path.join(folder, "bin", "python")
            _call([inner, "-m", "pip", "install", package], "pip did not install %s" % package)
            Started(inner).end()
            _link(folder, link)
        finally:
            _remove_others(link)
    return os.path.join(link, "bin", "python")


def newest() -> str:
    """Returns the path of the newest Python that JAX can be installed on, on the PATH or in pyenv.

    Raises:
        ConfigError: there is none.
    """
    pyenv = os.environ.get("PYENV_ROOT") or os.path.join(os.path.expanduser("~"), ".pyenv")
    names = ["python%d.%d" % release for release in RELEASES]
    paths = [*map(shutil.which, [*names, "python3"]), sys.executable]
    paths += sorted(glob.glob(os.path.join(pyenv, "versions", "*", "bin", "python")))
    versions = {path: _version(path) for path in dict.fromkeys(filter(None, paths))}
    for release in RELEASES:
        for path, version in versions.items():
            if version == release:
                return path
    seen = sorted({"%d.%d" % version for version in versions.values() if version})
    raise ConfigError(
        "the engine needs Python %s, and neither the PATH nor pyenv has one (seen: %s); install one, or name "
        "it: npu-shim engine install --python PATH" % (_releases(), ", ".join(seen) or "none")
    )


def _suitable(python: str) -> tuple[int, int]:
    """Returns the version of an interpreter. Raises ConfigError if it cannot be run, or JAX has no release for it."""
    version = _version(python)
    if version not in RELEASES:
        what = "Python %d.%d" % version if version else "no Python that runs"
        raise ConfigError("'%s' is %s, expected %s" % (python, what, _releases()))
    assert version
    return version


def _releases() -> str:
    return " or ".join("%d.%d" % release for release in sorted(RELEASES))


def _version(python: str) -> tuple[int, int] | None:
    """Returns the version of an interpreter, None if it does not say."""
    try:
        asked = subprocess.run(
            [python, "-c", VERSION], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=60
        )
        major, minor = map(int, asked.stdout.split(b"."))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # a shim of pyenv, for a version that is not chosen
    return major, minor


def _call(command: Sequence[str], otherwise: str) -> None:
    """Runs a program. Raises ConfigError with the text `otherwise` if it fails."""
    sys.stdout.flush()
    own = other_python.environment()
    status = subprocess.call(command, env=own)
    if status:
        raise ConfigError("%s (status %d); see its output above" % (otherwise, status))


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Scope in which no other process installs into a folder, which it makes.

    Raises:
        ConfigError: the folder cannot be written, or another process installs now.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "engine.lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError as reason:
        raise ConfigError("another process installs the engine into '%s'" % folder) from reason
    except OSError as reason:
        raise ConfigError("'%s' cannot be written: %s" % (folder, reason.strerror or reason)) from reason


def _link(folder: str, link: str) -> None:
    """Makes a link point to a folder, at once."""
    fresh = folder + ".link"
    os.symlink(os.path.basename(folder), fresh)
    os.replace(fresh, link)


def _remove_others(link: str) -> None:
    """Removes the environments that the link does not point to, but for those in which a worker still runs."""
    for path in glob.glob(link + ".*"):
        if os.path.islink(path):
            os.unlink(path)
        elif os.path.isdir(path) and os.path.realpath(path) != os.path.realpath(link) and not is_used(path):
            shutil.rmtree(path, ignore_errors=True)
