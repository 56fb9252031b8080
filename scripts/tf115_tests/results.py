"""Verdicts on disk, and the processes that give them."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from typing import List, NamedTuple, Optional

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

import tiers  # noqa: E402

# what the tests of a machine must not see of it
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "NPU_SHIM_LOG": "off"}


class Again(NamedTuple):
    """What runs although it has a result: words of files or methods, all that they name or what of it does not pass."""

    rerun: List[str]
    failing: List[str]


class Job(NamedTuple):
    """A file to run, and the names of its methods, or None for all."""

    file: str
    only: Optional[List[str]]


class Cache:
    """The last verdict on each method, a JSON file for each TensorFlow and test file."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)

    def read(self, variant, file):
        """The result of a file: {"blob", "commit", "tests": {name: verdict}, "file": error}, or None."""
        path = self._path(variant, file)
        return json.loads(path.read_text()) if path.exists() else None

    def job(self, variant, file, blob, again):
        """What there is to run of a file, or None."""
        result = self.read(variant, file)
        if result is None or result["blob"] != blob:
            return Job(file, None)
        names = result["tests"]
        asked = [name for name in names if _has(file, name, again.rerun)]
        bad = [name for name in names if names[name]["state"] != "pass" and _has(file, name, again.failing)]
        if result["file"] and _has(file, "", [*again.rerun, *again.failing]):
            return Job(file, None)
        wanted = [name for name in names if name in {*asked, *bad}]
        return Job(file, None if len(wanted) == len(names) else wanted) if wanted else None

    def keep(self, variant, job, answer, blob):
        """Keeps the verdicts that a job gave; returns the file's result."""
        old = self.read(variant, job.file) if job.only is not None else None
        tests = {**(old["tests"] if old else {}), **answer["tests"]}
        result = {**answer, "tests": tests, "blob": blob, "commit": commit()}
        path = self._path(variant, job.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1, sort_keys=True))
        return result

    def _path(self, variant, file):
        return self._folder / variant / (file.replace("/", "__") + ".json")


def _has(file, name, words):
    return any(word in "%s::%s" % (file, name) for word in words)


def variant(version, options):
    """The name under which results of a TensorFlow with options are kept."""
    return " ".join([version, *options]).replace("/", "_")


def commit():
    """The commit of the project that gave a result."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=str(ROOT), stdout=subprocess.PIPE, check=False
    )
    return done.stdout.decode().strip()


@contextlib.contextmanager
def server(version, plain, options, folder, suite="tensorflow", python=None):
    """Starts a process with a TensorFlow; gives a function that answers a job (see served.py).

    Args:
        version: str, of a tier.
        plain: whether the files run as they are, not under npu-shim.
        options: list of str, options of `npu-shim run` or NAME=VALUE for the environment.
        folder: the tree.
        suite: str, of SUITES.
        python: path of the interpreter, or None for that of the tier.
    """
    if python is None:
        python = next(tier for tier in tiers.TIERS if tier.tensorflow == version).bin / "python"
    variables = dict(word.split("=", 1) for word in options if not word.startswith("-"))
    words = ["plain"] if plain else ["npu-shim", *(word for word in options if word.startswith("-"))]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NPU_SHIM_", "TF_", "XLA_"))}
    served = subprocess.Popen(
        [str(python), "-W", "ignore", str(HERE / "served.py"), suite, *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=str(folder),
        env={**kept, **QUIET, **variables, "TEST_SRCDIR": str(folder.parent), "TEST_WORKSPACE": folder.name},
    )  # fmt: skip

    def answer(job):
        served.stdin.write((json.dumps(job) + "\n").encode())
        served.stdin.flush()
        line = served.stdout.readline()
        if not line:
            sys.exit("the process with TensorFlow %s ended" % version)
        return json.loads(line)

    try:
        yield answer
    finally:
        served.stdin.close()
        served.stdout.close()
        served.kill()
        served.wait()
