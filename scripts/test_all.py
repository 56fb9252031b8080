"""Runs the tests on every TensorFlow that this machine has a Python for: what `scripts/test --all` does.

Each row of TIERS gets a virtual environment of its own (`scripts/venv`). Installing goes on while the first tests run.
The reference runs everything; the other rows leave out the tests marked `slow`, which show nothing that depends on the
version. Arguments go to pytest. The status is 0 when nothing failed; a row without a Python is skipped, not failed.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from typing import NamedTuple, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUICK = ("-m", "not slow")
SESSIONS = tuple("tests/tf/test_%s.py" % name for name in ("session", "estimator", "cli"))


class Tier(NamedTuple):
    """One row of the matrix; `checks` are programs that run beside pytest, `tests` are pytest's arguments."""

    tensorflow: str
    pythons: Tuple[str, ...]
    folder: str
    extra: str
    tests: Tuple[str, ...]
    what: str
    checks: Tuple[str, ...] = ()


# the first Python of a row that is here is taken
TIERS = (
    Tier("2.15.1", ("3.11", "3.10"), ".venv", "test", (), "everything, lint, types", ("ruff check .", "mypy")),
    Tier("1.15.5", ("3.7",), ".venv-tf115", "test-tf115", QUICK, "all but slow"),
    Tier("2.21.0", ("3.12", "3.13", "3.11"), ".venv-tf221", "test-tf221", QUICK, "all but slow"),
    Tier("2.15.1", ("3.9",), ".venv-py39", "test", (*QUICK, "tests/pure", *SESSIONS), "pure, sessions, Estimator"),
)


class Result(NamedTuple):
    """What a tier came to; a check, an installation or a run of pytest that fails counts as one failed test."""

    tier: Tier
    python: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""


def main(arguments):
    """Runs the tiers, prints the table and the closing line, and returns the exit status."""
    with concurrent.futures.ThreadPoolExecutor(2) as installers:
        pythons = {tier: _python(tier) for tier in TIERS}
        venvs = {tier: installers.submit(_install, tier, pythons[tier]) for tier in TIERS if pythons[tier]}
        results = []
        for tier in TIERS:
            if tier in venvs:
                results.append(_run(tier, venvs[tier], arguments))
            else:
                missing = "skipped: no Python %s here" % " or ".join(tier.pythons)
                results.append(Result(tier, "-", note=missing))
    _print(results)
    return 1 if any(result.failed for result in results) else 0


def _python(tier):
    """Path of the tier's Python, or "" if there is none."""
    found = subprocess.run(
        ["scripts/python", *tier.pythons], cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    return found.stdout.decode().strip()


def _install(tier, python):
    """Makes the tier's environment and returns pip's error, or "" if there is none."""
    made = subprocess.run(
        ["scripts/venv", tier.folder, tier.extra, python],
        cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return made.stdout.decode("utf-8", "replace") if made.returncode else ""


def _run(tier, venv, arguments):
    trouble = venv.result()
    version = _version(tier) if not trouble else "-"
    print("\n== TensorFlow %s, Python %s: %s" % (tier.tensorflow, version, tier.what), flush=True)
    if trouble:
        print(trouble)
        return Result(tier, version, failed=1, note="not installed")
    begin = time.time()
    bad = [check for check in tier.checks if _call(tier, check.split())]
    passed, failed, skipped = _pytest(tier, arguments)
    note = "failed: " + ", ".join(bad) if bad else ""
    return Result(tier, version, passed, failed + len(bad), skipped, time.time() - begin, note)


def _version(tier):
    ask = "import platform; print(platform.python_version())"
    return subprocess.check_output([str(ROOT / tier.folder / "bin" / "python"), "-c", ask]).decode().strip()


def _call(tier, command):
    """Runs a program of the tier's environment and returns its status."""
    folder = str(ROOT / tier.folder / "bin")
    env = dict(os.environ, PATH=os.pathsep.join([folder, os.environ.get("PATH", "")]))
    return subprocess.call([os.path.join(folder, command[0]), *command[1:]], cwd=str(ROOT), env=env)


def _pytest(tier, arguments):
    """Runs pytest, a process a core, and returns the numbers of tests that passed, failed and were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        status = _call(
            tier,
            ["pytest", "-q", "-n", str(os.cpu_count() or 1), "--dist", "loadfile", "--durations=8",
             "--junitxml", report, *tier.tests, *arguments],
        )  # fmt: skip
        if not os.path.exists(report):
            return 0, 1, 0
        suites = list(xml.parse(report).getroot().iter("testsuite"))
    ran, failures, errors, skipped = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    # pytest can fail without a failed test: no tests at all, a worker that died
    return ran - failed - skipped, failed or int(status != 0), skipped


def _print(results):
    line = "%-11s %-8s %-28s %7s %7s %8s %7s  %s"
    print("\n" + line % ("TensorFlow", "Python", "tests", "passed", "failed", "skipped", "time", ""))
    for each in results:
        minutes = "%d:%02d" % divmod(int(each.seconds), 60)
        counts = (each.passed, each.failed, each.skipped, minutes)
        print((line % (each.tier.tensorflow, each.python, each.tier.what, *counts, each.note)).rstrip())
    totals = tuple(sum(getattr(each, key) for each in results) for key in ("passed", "failed", "skipped"))
    print("\n%d passed, %d failed, %d skipped" % totals, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
