"""The engine's worker: what it computes, and what is left when it, its parent or its memory ends. No TensorFlow.

Nightly each way to die has 20 trials at random moments; by default it has a few.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from other_processes import ends, lives, stop

from npu_shim.engine.device.programs import Loading
from npu_shim.engine.device.worker import memory, remote, starting
from npu_shim.options import engine as options
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.ir.graph import CONTROL
from npu_shim.step import packing

TRIALS = 20 if os.environ.get("NPU_SHIM_NIGHTLY") else 2
PYTHON = os.environ.get(options.JAX) or (sys.executable if options.has_jax() else None)
needs_jax = pytest.mark.skipif(PYTHON is None, reason="no interpreter with JAX: NPU_SHIM_JAX names none")
ROWS = 1000


def graph():
    """A packed step: it adds 1 to n, and to each of w's values the sum of x; the two are one state."""
    numbers = np.int32([1, 0, 1]).tobytes()
    attrs = [
        {"dtype": {"t": "float32"}}, {"shared_name": {"s": "n"}, "dtype": {"t": "int32"}},
        {"shared_name": {"s": "w"}, "dtype": {"t": "float32"}}, {"value": {"c": ["int32", [], 0, 4]}},
        {"value": {"c": ["int32", [2], 4, 8]}}, {"keep_dims": False}, {"dtype": {"t": "int32"}},
    ]  # fmt: skip
    nodes = [
        ["x", "Placeholder", [], [], 0], ["n", "VarHandleOp", [], [], 1], ["w", "VarHandleOp", [], [], 2],
        ["one", "Const", [], [], 3], ["axes", "Const", [], [], 4], ["sum", "Sum", [[0, 0], [4, 0]], [], 5],
        ["add", "AssignAddVariableOp", [[1, 0], [3, 0]], [], 6],
        ["add_1", "AssignAddVariableOp", [[2, 0], [5, 0]], [], 0],
    ]  # fmt: skip
    results = [["loss:0", 5, 0], ["add", 6, CONTROL], ["add_1", 7, CONTROL]]
    document = {
        "format": packing.FORMAT, "graph": {"nodes": nodes, "results": results, "arguments": []}, "functions": {},
        "attrs": attrs, "feeds": [["x", "x:0"]], "variables": {"n": ["int32", []], "w": ["float32", [ROWS]]},
        "draws": [],
    }  # fmt: skip
    text = json.dumps(document).encode()
    return packing.LENGTH.pack(len(text)) + text + numbers


GRAPH = graph()
STATE = Tensor("state", "n", (), "int32"), Tensor("state", "w", (ROWS,), "float32")
FETCH = Tensor("fetch", "loss:0", (), "float32")
MANIFEST = Manifest((Tensor("feed", "x:0", (4, 8), "float32"), *STATE), (FETCH, *STATE))
START = {"n": np.int32(0), "w": np.zeros(ROWS, np.float32)}
ONES = {"x:0": np.ones((4, 8), np.float32)}


def opened(exact=None):
    """A device in a worker, with the step loaded and its state put."""
    device = remote.Worker(PYTHON, exact)
    asked = {"feeds": [["x:0", "float32", [4, 8]]], "state": [["n", "int32", []], ["w", "float32", [ROWS]]]}
    assert not device.lower(GRAPH, {**asked, "known": {}, "products": "highest"})["refusal"]
    assert device.load(MANIFEST, GRAPH) == Loading(0)
    device.put(START)
    return device


def state(device):
    """The number of the step that the state is of; it is of one step."""
    values = device.get(["n", "w"])
    assert (values["w"] == 32 * values["n"]).all()
    return int(values["n"])


@needs_jax
def test_steps_run_on_the_state_of_the_worker():
    device = opened()
    for number in range(1, 4):
        assert device.run(0, ONES)["loss:0"] == 32
        assert state(device) == number
    device.put({"n": np.int32(0), "w": np.zeros(ROWS, np.float32)})
    device.run(0, {"x:0": 2 * ONES["x:0"]})
    values = device.get(["n", "w"])
    assert (values["n"], values["w"][0]) == (1, 64)
    device.close()


@needs_jax
def test_values_without_elements_and_of_other_shapes_are_put():
    device = opened()
    device.put({"empty": np.zeros((0, 3), np.float64), "flag": np.array(True)})
    device.put({"empty": np.ones((2, 3), np.float64), "flag": np.array(False)})
    values = device.get(["empty", "flag"])
    assert values["empty"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert not values["flag"]


@needs_jax
def test_dtypes_that_numpy_lacks_are_kept():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    device = opened()
    device.put({"half": np.arange(5).astype(bfloat16)})
    value = device.get(["half"])["half"]
    assert value.dtype == bfloat16
    assert value.tolist() == [0, 1, 2, 3, 4]


@needs_jax
def test_errors_of_the_worker_are_errors_here():
    device = opened()
    with pytest.raises((ConfigError, RuntimeError)):
        device.load(MANIFEST, b"no program")
    with pytest.raises(ValueError, match=r"feed 'x:0' has shape \(2,\), expected \(4, 8\)"):
        device.run(0, {"x:0": np.ones(2, np.float32)})
    device.run(0, ONES)
    assert state(device) == 1


def until_it_dies(device):
    """Trains until the worker is killed, and returns the number of completed steps."""
    for completed in range(10**6):
        try:
            device.run(0, ONES)
        except starting.Gone as reason:
            assert "killed by signal 9" in str(reason)  # noqa: PT017
            return completed
    raise AssertionError("the worker lives")


@needs_jax
@pytest.mark.parametrize("exact", [None, False], ids=["each step kept", "kept now and then"])
def test_a_killed_worker_leaves_the_state_of_a_completed_step(exact):
    moments = random.Random(0)
    for _ in range(TRIALS):
        device = opened(exact)
        device.run(0, ONES)
        killer = threading.Timer(moments.uniform(0, 0.1), os.kill, [device.started.pid, signal.SIGKILL])
        killer.start()
        completed = 1 + until_it_dies(device)
        behind = device.recover()
        assert state(device) == completed - behind
        if exact is None:
            assert behind == 0
        killer.join()


PARENT = """
import os, sys
sys.path[:1] = [%r, %r, %r]
import numpy as np
import test_worker_process as here
device = here.opened()
if sys.argv[1:] == ["fork"] and not os.fork():
    import time
    time.sleep(60)
print(device.started.pid, flush=True)
while True:
    device.run(0, here.ONES)
"""


@needs_jax
@pytest.mark.parametrize("forked", [(), ("fork",)], ids=["", "a forked child lives on"])
def test_a_killed_parent_leaves_no_worker(forked):
    folder = os.path.dirname(os.path.abspath(__file__))
    code = PARENT % (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder)))
    environment = {**os.environ, options.JAX: PYTHON}
    before = shared_files()
    moments = random.Random(0)
    for _ in range(TRIALS):
        parent = subprocess.Popen(
            [sys.executable, "-c", code, *forked], stdout=subprocess.PIPE, env=environment,
            start_new_session=True,
        )  # fmt: skip
        worker = int(parent.stdout.readline())
        time.sleep(moments.uniform(0, 0.1))
        assert lives(worker)
        parent.kill()
        parent.wait()
        assert ends(worker)
        if forked:
            os.killpg(parent.pid, signal.SIGKILL)
        parent.stdout.close()
    assert shared_files() == before


def shared_files():
    return sorted(name for name in os.listdir(memory.FOLDER) if "npu_shim" in name)


@needs_jax
def test_ctrl_c_ends_the_waiting_and_no_step():
    device = opened()
    for number in range(1, TRIALS + 1):
        stop(device.started.pid)
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            device.run(0, ONES)
        os.kill(device.started.pid, signal.SIGCONT)
        assert state(device) == number  # the step was on its way, and is whole
    os.kill(device.started.pid, signal.SIGINT)  # a terminal sends it to both
    device.run(0, ONES)
    assert state(device) == TRIALS + 1


@needs_jax
def test_without_shared_memory_is_an_error_that_changes_nothing():
    device = opened()
    device.run(0, ONES)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(memory.NoRoom, match=r"0\.1 MB of shared memory is not available: File too large"):
            device.put({"large": np.zeros(6000)})
        big = Manifest((Tensor("feed", "x:0", (4, 8000), "float32"), *STATE), (FETCH, *STATE))
        with pytest.raises(memory.NoRoom, match=r"0\.1 MB of shared memory"):
            device.load(big, GRAPH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    device.run(0, ONES)
    assert state(device) == 2


FULL = """
import sys
sys.path[:1] = [%r]
from npu_shim.engine.device.worker import memory
import os, ctypes
if hasattr(os, "memfd_create"):
    del os.memfd_create
memory.ctypes.CDLL = lambda *arguments, **named: object()
kept = memory.Block.of(600 * 1024)
try:
    memory.Block.of(600 * 1024)
except memory.NoRoom as reason:
    print(reason)
del kept
print(memory.Block.of(600 * 1024).size, os.listdir("/dev/shm"))
"""


def test_where_there_are_only_files_a_full_file_system_is_an_error():
    """With a file system of 1 MB in place of /dev/shm, which a namespace of its own takes."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    mounted = "mount -t tmpfs -o size=1m none /dev/shm && exec \"$@\""
    command = ["unshare", "-Urm", "sh", "-c", mounted, "sh", sys.executable, "-c", FULL % root]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if b"unshare" in done.stderr or b"mount" in done.stderr:
        pytest.skip("no namespaces here: %s" % done.stderr.decode())
    said = done.stdout.decode().splitlines()
    assert said == ["0.6 MB of shared memory is not available: No space left on device", "614400 []"], done.stderr


@needs_jax
def test_two_connections_have_state_of_their_own_in_one_worker():
    devices = [opened() for _ in range(2)]
    assert devices[0].started is devices[1].started

    def train(device, steps):
        for _ in range(steps):
            device.run(0, ONES)

    threads = [threading.Thread(target=train, args=arguments) for arguments in zip(devices, (50, 30))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [state(device) for device in devices] == [50, 30]
    devices[0].close()
    devices[1].run(0, ONES)
    assert state(devices[1]) == 31


@needs_jax
def test_a_forked_child_does_not_touch_its_parent_s_worker():
    device = opened()
    device.run(0, ONES)
    child = os.fork()
    if not child:
        try:
            device.run(0, ONES)
        except RuntimeError as reason:
            device.close()
            device.started.end()
            os._exit(3 if "forked" in str(reason) else 4)
        os._exit(5)
    assert os.waitpid(child, 0)[1] >> 8 == 3
    device.run(0, ONES)
    assert state(device) == 2


@needs_jax
def test_a_thread_that_ends_does_not_take_the_worker_along():
    opened().started.end()  # the next one is started by the thread
    engines = []
    thread = threading.Thread(target=lambda: engines.append(opened()))
    thread.start()
    thread.join()
    time.sleep(0.7)
    engines[0].run(0, ONES)
    assert state(engines[0]) == 1


def test_wrong_interpreters_are_named():
    with pytest.raises(ConfigError, match="'/no/python' cannot be run: No such file"):
        remote.Worker("/no/python")
    with pytest.raises(ConfigError, match=r"'/bin/false' is not an interpreter for the engine: .* \(status 1\)"):
        remote.Worker("/bin/false")


@pytest.mark.skipif(options.has_jax(), reason="this interpreter has JAX")
def test_an_interpreter_without_jax_says_so():
    with pytest.raises(ImportError, match=r"JAX cannot be imported .* pip install .*python"):
        remote.Worker(sys.executable)
