"""Runs the tests on every TensorFlow that this machine has a Python for: what `scripts/test --all` does.

The table is in tiers.py. Each row has a virtual environment of its own; installing goes on while the first tests run.
The reference, TensorFlow 2.15.1, runs everything; the other rows leave out what shows nothing that depends on the
version: the rules of planning (`RULES` in tiers.py) and the tests marked `slow`; one row runs what depends on the kind
of processor as without AVX-512 (`KERNELS`; everything with NPU_SHIM_NIGHTLY=1). Arguments go to pytest. The status is
0 when nothing failed; a row without a Python is skipped, not failed, and a test that skips without being expected to
(skips.py) has failed.
"""

import collections
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from typing import NamedTuple

import skips
import test_environment
import tiers


class Result(NamedTuple):
    """What a tier came to; a check, an installation or a run of pytest that fails counts as one failed test."""

    tier: tiers.Tier
    python: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""


def main(arguments):
    """Runs the tiers, prints the table and the closing line, and returns the exit status."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes import TensorFlow and this checkout
    with concurrent.futures.ThreadPoolExecutor(2) as installers, test_environment.own_home() as home:
        jax = installers.submit(_name_jax)
        wanted = {tier.folder: tier for tier in reversed(tiers.TIERS) if tiers.python(tier)}
        here = {folder: installers.submit(tiers.install, tier) for folder, tier in reversed(list(wanted.items()))}
        results = [jax.result()] if jax.result() else []
        for tier in tiers.TIERS:
            env = {**home, **{key: os.environ[key] for key in ("NPU_SHIM_JAX",) if key in os.environ}}
            env.update(tier.variables)
            is_here = tier.folder in here
            results.append(_run(tier, here[tier.folder], arguments, env) if is_here else _missing(tier))
    _print(results)
    return 1 if any(result.failed for result in results) else 0


def _name_jax():
    """Makes the environment with JAX and names it to the tests, unless one is named; a Result where it cannot."""
    if os.environ.get("NPU_SHIM_JAX"):
        return None
    if not tiers.python(tiers.JAX):
        return _missing(tiers.JAX)
    trouble = tiers.install(tiers.JAX)
    if trouble:
        print(trouble)
        return Result(tiers.JAX, "-", failed=1, note="could not be installed")
    os.environ["NPU_SHIM_JAX"] = str(tiers.JAX.bin / "python")
    return None


def _missing(tier):
    return Result(tier, "-", note="skipped: no Python %s here" % " or ".join(tier.pythons))


def _run(tier, installed, arguments, env):
    trouble = installed.result()
    version = "-" if trouble else _version(tier)
    print("\n== TensorFlow %s, Python %s: %s" % (tier.tensorflow, version, tier.what), flush=True)
    if trouble:
        print(trouble)
        return Result(tier, version, failed=1, note="could not be installed")
    begin = time.time()
    with concurrent.futures.ThreadPoolExecutor(1) as beside:  # mypy has use for one core only
        checked = beside.submit(lambda: [check for check in tier.checks if _call(tier, check.split())])
        passed, failed, skipped = _pytest(tier, arguments, env)
        bad = checked.result()
    note = "failed: " + ", ".join(bad) if bad else ""
    return Result(tier, version, passed, failed + len(bad), skipped, time.time() - begin, note)


def _version(tier):
    ask = "import platform; print(platform.python_version())"
    return subprocess.check_output([str(tier.bin / "python"), "-c", ask]).decode().strip()


def _call(tier, command, environment=os.environ):
    """Runs a program of the tier's environment and returns its status."""
    env = dict(environment, PATH=os.pathsep.join([str(tier.bin), os.environ.get("PATH", "")]))
    return subprocess.call([str(tier.bin / command[0]), *command[1:]], cwd=str(tiers.ROOT), env=env)


def _pytest(tier, arguments, env):
    """Runs pytest, a process a core, and returns the numbers of tests that passed, failed and were skipped.

    A skip that skips.py does not expect counts as failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        told = ["-q", "--durations=8", "--junitxml", report, *tier.tests, *arguments]
        status = _call(tier, ["pytest", *test_environment.pytest_arguments(arguments), *told], env)
        if not os.path.exists(report):
            return 0, 1, 0
        root = xml.parse(report).getroot()
    print("slowest files: " + ", ".join("%s %.0f s" % pair for pair in _slowest(root)))
    surprises = list(skips.unexpected(root, tier.extra, bool(env.get("NPU_SHIM_JAX"))))
    for test, reason in surprises:
        print("%s is skipped, and should run here: %s" % (test, reason))
    suites = list(root.iter("testsuite"))
    ran, failures, errors, skipped = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    passed = ran - failed - skipped
    # pytest can fail without a failed test: nothing to run, a process that died
    return passed, (failed or int(status != 0)) + len(surprises), skipped - len(surprises)


def _slowest(root, most=16):
    """(file of tests, seconds that its tests took) for those that took most, from a JUnit report."""
    seconds = collections.Counter()
    for case in root.iter("testcase"):
        parts = case.get("classname").split(".")
        seconds[next((part for part in parts if part.startswith("test_")), parts[-1])] += float(case.get("time", 0))
    return seconds.most_common(most)


def _print(results):
    line = "%-11s %-8s %-28s %7s %7s %8s %7s  %s"
    print("\n" + (line % ("TensorFlow", "Python", "tests", "passed", "failed", "skipped", "time", "")).rstrip())
    for outcome in results:
        minutes = "%d:%02d" % divmod(int(outcome.seconds), 60)
        counts = (outcome.passed, outcome.failed, outcome.skipped, minutes)
        print((line % (outcome.tier.tensorflow, outcome.python, outcome.tier.what, *counts, outcome.note)).rstrip())
    totals = tuple(sum(getattr(outcome, key) for outcome in results) for key in ("passed", "failed", "skipped"))
    print("\n%d passed, %d failed, %d skipped" % totals, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
