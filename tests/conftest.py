"""What is marked `nightly` runs with NPU_SHIM_NIGHTLY=1 only; files run in any order, and leave things as they were.

Of a test that is marked `by_day` the combinations that the mark names run always, the others are nightly.
"""

import collections
import gc
import os
import random
import signal
import subprocess
import sys

import left_behind
import pytest

import npu_shim  # noqa: F401 - switches oneDNN on, before TensorFlow is imported

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # as the command does, which some tests call in this process
os.environ.setdefault("NPU_SHIM_VERIFY", "each")  # a pass that breaks a graph is named, also where a later one fixes it
# files that take half a minute or more: several processes begin with them, so that none runs one while the others wait
LONG = (
    "attention_kernels", "automatic_scale", "automatic_scale_scripts", "bridge_ranks", "bridge_rnn",
    "bridge_surface", "calibration", "cli", "compat_script", "compiled_devices", "compiled_graphs",
    "compiled_lists", "compiled_loops", "compiled_recomputation", "compiled_rows_in_bodies", "differential",
    "engine", "engine_cache", "engine_devices", "engine_guards", "engine_ranks", "engine_worker", "examples",
    "export", "foreign_sessions", "fuzz", "grappler_oracle", "guides", "horovod", "idioms", "launcher",
    "loss_scale_checkpoint", "loss_scale_eager", "loss_scale_golden", "loss_scale_optimizer", "loss_scale_windows",
    "migrate_checkpoint", "pjrt", "rank_collectives", "rank_failures", "real_graphs", "run_quiet", "saturation",
    "saver", "tune", "untaken_options", "watching", "xla_conditionals",
)  # fmt: skip
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as where a shell has started the tests with "&"
    signal.signal(signal.SIGINT, signal.default_int_handler)
SEED = "--seed"
ADVICE = """\
Run the file by itself: scripts/test TEST_FILE. If it passes there, the order matters: give the --seed of this run.
If it fails there too, try it as on a processor without AVX-512: scripts/test --avx2 TEST_FILE. Tell us which of these
fail, with the first lines of the failure, what `npu-shim doctor` prints, and the model of the processor."""


@pytest.fixture(scope="module")
def plugin():
    """An interpreter with JAX and its CUDA plugin: $NPU_SHIM_JAX, or this one."""
    python = os.environ.get("NPU_SHIM_JAX") or sys.executable
    look = "import jax_plugins, pkgutil; print(*(m.name for m in pkgutil.iter_modules(jax_plugins.__path__)))"
    done = subprocess.run([python, "-c", look], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if b"xla_cuda" not in done.stdout:
        pytest.skip("'%s' has no JAX with its CUDA plugin: pip install 'npu-shim[pjrt-cuda]'" % python)
    return python


def pytest_addoption(parser):
    parser.addoption(SEED, type=int, default=None, metavar="N", help="shuffle the files of tests by this number")


def pytest_configure(config):
    if config.getoption(SEED) is not None:
        config.option.loadscopereorder = False  # xdist would put the files with most tests first, whatever the seed


def pytest_report_header(config):
    seed = config.getoption(SEED)
    return None if seed is None else "files in the order of %s %d: give the same to repeat it" % (SEED, seed)


def mark_combinations(items):
    """Marks what `by_day` does not name as nightly; notes at each test which of its names are no combinations."""
    combinations = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("by_day"):
            combinations[item.parent.nodeid, item.originalname].append(item)
    for those in combinations.values():
        by_day = those[0].get_closest_marker("by_day").args
        for item in those:
            if item.callspec.id not in by_day:
                item.add_marker(pytest.mark.nightly)
        those[0].unknown = set(by_day).difference(item.callspec.id for item in those)


def pytest_runtest_setup(item):
    asked_for_one = any("::" in argument for argument in item.config.args)
    if getattr(item, "unknown", None) and not asked_for_one:
        told = "%s runs by day as what it has not: %s" % (item.originalname, ", ".join(sorted(item.unknown)))
        pytest.fail(told, pytrace=False)


def pytest_collection_modifyitems(config, items):
    mark_combinations(items)
    if not os.environ.get("NPU_SHIM_NIGHTLY"):
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(pytest.mark.skip(reason="runs with NPU_SHIM_NIGHTLY=1"))
    seed = config.getoption(SEED)
    if seed is not None:
        files = sorted({str(item.fspath) for item in items})
        random.Random(seed).shuffle(files)
        if hasattr(config, "workerinput"):  # one of several processes
            files.sort(key=lambda path: os.path.basename(path)[5:-3] not in LONG)  # stable
        rank = {path: k for k, path in enumerate(files)}
        items.sort(key=lambda item: rank[str(item.fspath)])  # the tests of a file stay together, in their order


def pytest_collection_finish():
    """Keeps what is imported, half a million objects, out of what the collector goes through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_terminal_summary(terminalreporter, config):
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.section("what to do")
        terminalreporter.write_line(ADVICE)


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind(request):
    """Fails where a file has changed what the next ones would meet, and puts it back."""
    left_behind.begin_alike()
    before = left_behind.looks()
    yield
    changes = left_behind.differences(before, left_behind.looks())
    if changes:
        left_behind.put_back(before)
        pytest.fail("%s leaves behind: %s" % (request.node.name, "; ".join(changes)), pytrace=False)
