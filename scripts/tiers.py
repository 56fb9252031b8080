"""The TensorFlows that the tests run on and that wheels are made for, and the environment of each."""

import os
import pathlib
import subprocess
from typing import NamedTuple, Tuple

from test_environment import AVX2

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUICK = ("-m", "not slow")
# rules on graphs and files, which are ours whatever TensorFlow is below them: the reference runs them for all
RULES = (
    "differential", "engine_compiled", "engine_stored", "export_graphs", "functions_random", "fuzz", "gradient_arrays",
    "guides", "lint", "loop_shapes", "migrate_checkpoint", "migrate_faults", "mode_goldens", "numerics", "page",
    "planted", "plot", "rank_collectives", "rank_faults", "real_graphs", "shapes", "tensor_lists", "tune",
    "watching", "xla_constants", "xla_graphs", "xla_late_sums", "xla_optionals", "xla_recompute",
)  # fmt: skip
# JAX cannot be installed beside 2.15
WITH_JAX = tuple("tests/pure/test_pjrt%s.py" % name for name in ("", "_barriers", "_cost", "_stored"))
VERSION = ("tests/tf", *("--ignore=tests/tf/test_%s.py" % name for name in RULES), *QUICK)
# what depends on the kind of processor; everything at night
KERNELS = tuple("tests/tf/test_%s.py" % name for name in ("channels", "cpu_rounding", "low_semantics", "rounding"))
KERNELS = () if os.environ.get("NPU_SHIM_NIGHTLY") else KERNELS


class Tier(NamedTuple):
    """One row of the matrix.

    `extra` is what pip installs into `folder`, with the first of `pythons` that is here; `tests` are pytest's
    arguments, `what` says them in words, `checks` are programs that run beside pytest, and `variables` are of its
    environment.
    """

    tensorflow: str
    pythons: Tuple[str, ...]
    folder: str
    extra: str
    tests: Tuple[str, ...]
    what: str
    checks: Tuple[str, ...] = ()
    variables: Tuple[Tuple[str, str], ...] = ()

    @property
    def bin(self):
        """Folder of the environment's programs."""
        return ROOT / self.folder / "bin"


TIERS = (
    Tier("2.15.1", ("3.11", "3.10"), ".venv", "test", (), "everything, lint, types", ("ruff check .", "mypy")),
    Tier("1.15.5", ("3.7",), ".venv-tf115", "test-tf115", ("tests/pure", *VERSION), "what depends on the version"),
    Tier("2.21.0", ("3.12", "3.13", "3.11"), ".venv-tf221", "test-tf221", (*WITH_JAX, *VERSION), "version, JAX"),
    Tier("2.15.1", ("3.11", "3.10"), ".venv", "test", KERNELS, "as without AVX-512", variables=AVX2),
    Tier("2.15.1", ("3.9",), ".venv-py39", "cpu-test", ("tests/pure",), "pure, doctor", ("npu-shim doctor",)),
)

# what runs exported programs; the tests of TensorFlow 2.15, which no JAX can be installed beside, call it
JAX = Tier("-", ("3.12", "3.13", "3.11"), ".venv-jax", "pjrt", (), "exported programs")


def python(tier):
    """Path of the Python for a tier, or "" if there is none."""
    found = subprocess.run(
        ["scripts/python", *tier.pythons], cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    return found.stdout.decode().strip()


def install(tier):
    """Makes or refreshes a tier's environment; returns pip's last words if it could not, else ""."""
    made = subprocess.run(
        ["scripts/venv", tier.folder, tier.extra, python(tier)],
        cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return made.stdout.decode("utf-8", "replace") if made.returncode else ""
