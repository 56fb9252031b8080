"""The TensorFlows that the tests run on and that wheels are made for, and the environment of each."""

import os
import pathlib
import subprocess
from typing import NamedTuple, Tuple

from test_environment import AVX2

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUICK = ("-m", "not slow")
AT_NIGHT = bool(os.environ.get("NPU_SHIM_NIGHTLY"))
# rules on graphs and files, which are ours whatever TensorFlow is below them: the reference runs them for all
RULES = (
    "compiled_graphs", "differential", "engine_cache", "export_graphs", "float16_warnings", "functions_random",
    "fuzz", "gradient_arrays", "guides", "lint", "loop_shapes", "migrate_checkpoint", "migrate_regressions",
    "mode_goldens", "mutants", "plan_page", "planted_precision_faults", "plot", "rank_collectives", "rank_failures",
    "real_graphs", "shapes", "tensor_lists", "tune", "watching",
)  # fmt: skip
# what the reference shows for the others too, as a rule: passes of whole steps, schedules, many ranks. There at night
AS_THE_REFERENCE = (
    "attention_finder", "automatic_scale_entrances", "automatic_scale_scripts", "bridge_ranks",
    "bridge_rnn", "calibration", "channels_first", "check_config", "cli_odd_files", "collective_keys",
    "compiled_devices", "compiled_resnet", "cpu_rounding", "engine_devices", "engine_guards", "engine_hosts",
    "engine_lengths", "engine_local_variables", "engine_models", "engine_passes",
    "engine_programs", "engine_state", "engine_worker", "examples", "float16_constants", "foreign_sessions",
    "functions", "graph_editor", "grappler_oracle", "horovod", "horovod_estimator", "idioms", "ir_graphs",
    "iterations", "launcher", "learning_rates", "loop_conditions", "loss_scale_checkpoint", "loss_scale_eager",
    "loss_scale_golden", "loss_scale_grad_loss", "loss_scale_in_functions", "loss_scale_regressions",
    "loss_scale_safety", "loss_scale_scripts", "loss_scale_training", "loss_scale_windows", "low_semantics",
    "masters_of_scripts", "mode_training", "reference_calls", "reference_reads", "restore_casting",
    "rewriter_inputs", "rounding", "saturation", "saver", "scopes_around_calls", "step_passes", "unscaled_by_hand",
    "untaken_options", "xla_conditionals", "xla_nan", "xla_session", "xla_slow_ops",
)  # fmt: skip


def _files(*names: str, folder: str = "tf") -> Tuple[str, ...]:
    return tuple("tests/%s/test_%s.py" % (folder, name) for name in names)


LEFT_OUT = RULES if AT_NIGHT else (*RULES, *AS_THE_REFERENCE)
# JAX cannot be installed beside 2.15
WITH_JAX = _files(
    "attention_cards", "attention_division", "attention_kernels", "attention_substitution", "merged_rows",
    "narrow_gathers", "pjrt", "pjrt_barriers", "pjrt_cache", "pjrt_cost", "private_jax_names", "rank_sums",
    "step_philox", "step_platforms", "step_pools", "step_uniques", "table_gradients", folder="pure",
)  # fmt: skip
VERSION = ("tests/tf", *("--ignore=" + path for path in _files(*LEFT_OUT)), *QUICK)
# what depends on the kind of processor; everything at night
KERNELS = () if AT_NIGHT else _files("channels_first", "cpu_rounding", "low_semantics", "rounding")
# what an older Python may read otherwise than the reference's, which runs all of tests/pure; everything at night
IMPORTS = ("architecture", "child_interpreters", "without_tensorflow")
PLANS = ("checkpoint_plan", "cli_options", "inlining", "ir", "launch", "mixlist", "options", "passes", "plan", "scan")
# the oldest Python reads all that is written
OLD_PYTHON = ("tests/pure",) if AT_NIGHT else _files(*IMPORTS[1:], folder="pure")
OLDEST_PYTHON = ("tests/pure",) if AT_NIGHT else _files(*IMPORTS, *PLANS, folder="pure")


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


# in the order in which they run: the smallest installation first, as the larger ones go on beside its tests
TIERS = (
    Tier("1.15.5", ("3.7",), ".venv-tf115", "test-tf115", (*OLDEST_PYTHON, *VERSION), "what depends on the version"),
    Tier("2.15.1", ("3.11", "3.10"), ".venv", "test", (), "everything, lint, types", ("ruff check .", "mypy")),
    Tier("2.21.0", ("3.12", "3.13", "3.11"), ".venv-tf221", "test-tf221", (*WITH_JAX, *VERSION), "version, JAX"),
    Tier("2.15.1", ("3.11", "3.10"), ".venv", "test", KERNELS, "as without AVX-512", variables=AVX2),
    Tier("2.15.1", ("3.9",), ".venv-py39", "cpu-test", OLD_PYTHON, "imports, doctor", ("npu-shim doctor",)),
)

# what runs exported programs; the tests of TensorFlow 2.15, which no JAX can be installed beside, call it
JAX = Tier("-", ("3.12", "3.13", "3.11"), ".venv-jax", "pjrt", (), "exported programs")


def python(tier):
    """Path of the Python for a tier, or "" if there is none."""
    printed = subprocess.run(
        ["scripts/python", *tier.pythons], cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    return printed.stdout.decode().strip()


def install(tier):
    """Makes or refreshes a tier's environment; returns pip's last words if it could not, else ""."""
    installed = subprocess.run(
        ["scripts/venv", tier.folder, tier.extra, python(tier), "--no-compile"],  # what is imported compiles itself
        cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return installed.stdout.decode("utf-8", "replace") if installed.returncode else ""
