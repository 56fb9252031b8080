"""What scripts/gpu_check shows on a machine with a GPU, tried on a CPU: all parts, small."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("steps", "networks", "attention", "random", "accuracy", "session", "memory", "profile", "two")


@pytest.fixture(scope="module")
def dry_run():
    """(Exit status, output)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NPU_SHIM")}
    command = [sys.executable, str(ROOT / "scripts" / "gpu_check"), "--dry-run"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_all_parts_have_results_and_none_is_wrong(dry_run):
    status, out, told = dry_run
    assert status == 0, out[-3000:] + told[-3000:]
    report = out[out.index("# What a card showed") :]
    for part in PARTS:
        assert "\n## %s: " % part in report
    assert report.count(": ok") > 16
    assert "net-images-float32: ok" in report
    assert "- two: ok" in report  # two CPUs meet, whatever cards do
    assert report.rstrip().endswith("0 wrong")
