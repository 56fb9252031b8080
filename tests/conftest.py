"""What is marked `nightly` runs with NPU_SHIM_NIGHTLY=1 only; files run in any order, and leave things as they were."""

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
    "automatic_scale", "bridge_ranks", "compiled_graphs",
    "differential", "engine", "engine_cache", "examples", "export", "fuzz", "guides", "horovod", "idioms",
    "loss_scale_optimizer", "rank_collectives", "rank_failures", "real_graphs", "saver", "tune", "untaken_options",
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


def pytest_collection_modifyitems(config, items):
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
