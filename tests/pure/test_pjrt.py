"""An exported step under JAX: what it computes, its state, its errors. Needs JAX, no TensorFlow."""

import concurrent.futures
import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from npu_shim import pjrt
from npu_shim.pjrt import arrays, jax_compat, manifest
from npu_shim.pjrt import program as program_module
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.errors import ConfigError

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

RATE, MOMENTUM = 0.25, 0.5
WEIGHT, SLOT, STEP, FACTOR = (
    Tensor("state", "w", (4, 3), "float32", "parameter"),
    Tensor("state", "w/Momentum", (4, 3), "float32", "optimizer"),
    Tensor("state", "global_step", (), "int64", "other"),
    Tensor("state", "rate", (), "float32", "other"),
)
ARGUMENTS = (Tensor("feed", "x:0", (5, 4), "float32"), WEIGHT, SLOT, STEP, FACTOR, Tensor("feed", "y:0", (5,), "int32"))
RESULTS = (Tensor("fetch", "loss:0", (), "float32"), WEIGHT, SLOT, STEP)


def step(x, w, slot, count, rate, y):
    """One step of momentum on a softmax regression, written by hand: the same lines for numpy and for JAX."""
    xp = np if isinstance(x, np.ndarray) else jax.numpy
    logits = x @ w
    exp = xp.exp(logits - logits.max(1, keepdims=True))
    probability = exp / exp.sum(1, keepdims=True)
    hot = (y[:, None] == xp.arange(3)).astype("float32")
    loss = -(hot * xp.log(probability)).sum(1).mean()
    slot = MOMENTUM * slot + x.T @ (probability - hot) / 5
    return loss, w - rate * slot, slot, count + 1


def initial():
    random = np.random.RandomState(0)
    return {
        "w": random.randn(4, 3).astype(np.float32),
        "w/Momentum": np.zeros((4, 3), np.float32),
        "global_step": np.int64(2**40),  # and stays 64 bits wide
        "rate": np.float32(RATE),
    }


def feeds(count=None):
    random = np.random.RandomState(1)
    shape = () if count is None else (count,)
    return {"x:0": random.randn(*shape, 5, 4).astype(np.float32), "y:0": random.randint(0, 3, (*shape, 5), np.int32)}


def reference(batches):
    """Losses and last state by numpy."""
    state, losses = initial(), []
    for x, y in batches:
        loss, state["w"], state["w/Momentum"], state["global_step"] = step(
            x, state["w"], state["w/Momentum"], state["global_step"], state["rate"], y
        )
        losses.append(loss)
    return losses, state


@pytest.fixture(scope="module")
def artifact():
    """The step as an artifact, bytes."""
    with jax.enable_x64(True):
        given = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in ARGUMENTS]
        return jax.export.export(jax.jit(step))(*given).mlir_module_serialized


@pytest.fixture
def folder(artifact, tmp_path):
    manifest.write(str(tmp_path / "step"), artifact, Manifest(ARGUMENTS, RESULTS), sorted(initial().items()))
    return str(tmp_path / "step")


@pytest.fixture
def program(folder):
    return pjrt.load(folder, device="cpu")


def close(actual, expected):
    # a sum of five products, then two elementwise steps: a few roundings of float32
    np.testing.assert_allclose(actual, expected, rtol=32 * np.finfo(np.float32).eps, atol=1e-6)


def test_steps_equal_those_written_by_hand(folder):
    program = pjrt.load(folder, device="cpu")
    fed = feeds()
    losses = [float(program.run(fed)["loss:0"]) for _ in range(4)]
    expected, state = reference([(fed["x:0"], fed["y:0"])] * 4)
    close(losses, expected)
    assert losses[-1] < losses[0]
    actual = program.state()
    assert list(actual) == [t.name for t in program.manifest.state]
    close(actual["w"], state["w"])
    assert actual["global_step"] == 2**40 + 4
    assert actual["global_step"].dtype == np.int64


def test_a_loop_on_the_device_equals_single_steps_bit_for_bit(folder):
    stacked = feeds(10)
    single, whole = pjrt.load(folder, device="cpu"), pjrt.load(folder, device="cpu")
    losses = [single.run({"x": x, "y": y})["loss:0"] for x, y in zip(stacked["x:0"], stacked["y:0"])]
    np.testing.assert_array_equal(whole.run(stacked, iterations=10)["loss:0"], np.stack(losses))
    for name, value in single.state().items():
        np.testing.assert_array_equal(whole.state()[name], value)


@pytest.mark.parametrize("count", [0, -1, 2.5, "3"])
def test_iterations_are_a_number_of_steps(folder, count):
    """Regression: the shapes of the feeds were said to be wrong."""
    with pytest.raises(ConfigError, match=r"iterations is .* expected None or a whole number, 1 or more"):
        pjrt.load(folder, device="cpu").run(feeds(), iterations=count)


@pytest.mark.parametrize("slow", [False, True])
def test_a_bound_that_any_step_of_a_loop_has_passed_is_told(slow, monkeypatch):
    """The engine's loops fetch of their last step only."""
    from npu_shim.engine.device import programs
    from npu_shim.step.lowering import Lowered

    fetches = [Tensor("fetch", "loss:0", (), "float32"), Tensor("fetch", manifest.HOLDS, (), "bool")]
    feed = Tensor("feed", "x:0", (), "float32")
    lowered = jax.export.export(jax.jit(lambda x: (x, x < 3)))(jax.ShapeDtypeStruct((), np.float32))
    monkeypatch.setattr(program_module.Program, "has_slow_loops", slow)
    device = programs.InProcess()
    device._lowered = {b"graph": Lowered(lowered.mlir_module_serialized, [], [])}
    described = Manifest((feed,), tuple(fetches), iterations=3)
    number = device.load(described, b"graph").number
    for values in ([1, 2, 1], [5, 1, 2], [1, 5, 2], [1, 2, 5]):
        fetched = device.run(number, *({"x:0": np.float32(value)} for value in values))
        assert (fetched["loss:0"], fetched[manifest.HOLDS]) == (values[-1], max(values) < 3)


def test_state_behind_a_bound_that_did_not_hold_is_an_error(tmp_path):
    w = Tensor("state", "w", (), "float32")
    described = Manifest(
        (Tensor("feed", "x:0", (), "float32"), w),
        (Tensor("fetch", "loss:0", (), "float32"), Tensor("fetch", manifest.HOLDS, (), "bool"), w),
    )
    number = jax.ShapeDtypeStruct((), np.float32)
    exported = jax.export.export(jax.jit(lambda x, w: (x, x < 3, w + x)))(number, number)
    manifest.write(str(tmp_path / "step"), exported.mlir_module_serialized, described, [("w", np.float32(0))])
    program = pjrt.load(str(tmp_path / "step"), "cpu")
    assert list(program.run({"x": 1.0})) == ["loss:0"]
    assert program.state() == {"w": 1}
    program.run({"x": [2.0, 5.0, 1.0]}, iterations=3)
    for asked in (program.state, lambda: program.save(str(tmp_path / "a.npz"))):
        with pytest.raises(RuntimeError, match="a loop of a step ran more often"):
            asked()
    program.restore({"w": 2})
    assert program.state() == {"w": 2}


def test_ten_steps_of_convolutions_equal_single_steps_bit_for_bit(tmp_path):
    kernel, image = (
        Tensor("state", "k", (3, 3, 2, 2), "float32", "parameter"), Tensor("feed", "x:0", (4, 8, 8, 2), "float32")
    )  # fmt: skip

    def descend(x, k):
        def loss(k):
            layout = ("NHWC", "HWIO", "NHWC")
            return (jax.lax.conv_general_dilated(x, k, (2, 2), "SAME", dimension_numbers=layout) ** 2).mean()

        return loss(k), k - RATE * jax.grad(loss)(k)

    given = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in (image, kernel)]
    artifact = jax.export.export(jax.jit(descend))(*given).mlir_module_serialized
    described = Manifest((image, kernel), (Tensor("fetch", "loss:0", (), "float32"), kernel))
    random = np.random.RandomState(0)
    state = {"k": random.standard_normal(kernel.shape).astype(np.float32)}
    manifest.write(str(tmp_path / "step"), artifact, described, state.items())
    images = random.standard_normal((10, *image.shape)).astype(np.float32)
    single, whole = (pjrt.load(str(tmp_path / "step"), device="cpu") for _ in range(2))
    losses = [single.run({"x": image})["loss:0"] for image in images]
    np.testing.assert_array_equal(whole.run({"x": images}, iterations=10)["loss:0"], np.stack(losses))
    np.testing.assert_array_equal(whole.state()["k"], single.state()["k"])


def test_state_is_saved_and_restored(program, tmp_path):
    program.run(feeds())
    program.save(str(tmp_path / "one.npz"))
    after = [program.run(feeds())["loss:0"] for _ in range(2)]
    program.restore(str(tmp_path / "one.npz"))
    assert [program.run(feeds())["loss:0"] for _ in range(2)] == after
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npz", "step"]


def test_values_that_are_given_are_not_touched(program):
    mine = {name: np.array(value) for name, value in initial().items()}
    program.restore(mine)
    program.run(feeds())
    for name, value in initial().items():
        np.testing.assert_array_equal(mine[name], value)


def test_values_that_are_given_may_change_afterwards(program):
    """Regression: JAX takes an array at a multiple of 64 bytes where it is, on CPUs, whatever `may_alias` says."""
    mine = {}
    for name, value in ((name, np.asarray(value)) for name, value in initial().items()):
        memory = np.zeros(value.nbytes + arrays.ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % arrays.ALIGNMENT
        mine[name] = memory[begin : begin + value.nbytes].view(value.dtype).reshape(value.shape)
        mine[name][...] = value
    program.restore(mine)
    for value in mine.values():
        value[...] = 7
    for name, value in initial().items():
        np.testing.assert_array_equal(program.state()[name], value)


def test_state_takes_the_place_of_the_old_one(program):
    memory = program.compile().memory_analysis()
    donated = 2 * WEIGHT.shape[0] * WEIGHT.shape[1] * 4 + 8
    assert memory.alias_size_in_bytes >= donated


def test_an_export_without_values_takes_the_callers(artifact, tmp_path):
    manifest.write(str(tmp_path / "step"), artifact, Manifest(ARGUMENTS, RESULTS))
    with pytest.raises(ConfigError, match="exported without values"):
        pjrt.load(str(tmp_path / "step"))
    program = pjrt.load(str(tmp_path / "step"), device="cpu", state=initial())
    close(program.run(feeds())["loss:0"], reference([tuple(feeds().values())])[0][0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.pop("y:0"), "feeds lack 'y:0'"),
        (lambda f: f.update(yy=1), "feed 'yy' is not one of the program's: x:0, y:0"),
        (lambda f: f.update({"x:0": f["x:0"][:3]}), r"feed 'x:0' has shape \(3, 4\), expected \(5, 4\)"),
        (lambda f: f.update({"y:0": np.full(5, 0.5)}), "feed 'y:0' is float64, expected int32"),
        (lambda f: f.update(x=f["x:0"] + 1), "feed 'x:0' is given twice"),
        (lambda f: f.update({"y:0": [[1], [2, 3]]}), "feed 'y:0' is not an array: "),
        (lambda f: f.update({7: f.pop("y:0")}), "feeds names 7, expected a str"),
    ],
)
def test_feeds_that_do_not_fit(program, change, message):
    fed = feeds()
    change(fed)
    with pytest.raises(ConfigError, match=message):
        program.run(fed)


def test_feeds_and_state_are_dicts(program):
    with pytest.raises(ConfigError, match="feeds is list, expected a dict of names to arrays"):
        program.run(list(feeds().values()))
    with pytest.raises(ConfigError, match="state is NoneType, expected a dict of names to arrays"):
        program.restore(None)


def aligned(value):
    """A copy at an address that XLA's CPU client takes as it is, without a copy of its own."""
    memory = np.empty(value.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    aligned = memory[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    aligned[...] = value
    return aligned


def test_a_buffer_that_is_filled_again_changes_no_step_that_was_started(tmp_path):
    def slow(x):
        return (jax.lax.fori_loop(0, 200, lambda _, y: jax.numpy.tanh(y @ x), x).sum() + x.sum(),)

    feed = Tensor("feed", "x:0", (128, 128), "float32")
    with jax.enable_x64(True):
        code = jax.export.export(jax.jit(slow))(jax.ShapeDtypeStruct(feed.shape, feed.dtype)).mlir_module_serialized
    described = Manifest((feed,), (Tensor("fetch", "y:0", (), "float32"),))
    manifest.write(str(tmp_path / "slow"), code, described, [])
    program = pjrt.load(str(tmp_path / "slow"), device="cpu")
    value = np.random.RandomState(0).rand(128, 128).astype(np.float32)
    expected = float(program.run({"x": value})["y:0"])
    for _ in range(5):
        buffer = aligned(value)
        started = program.run({"x": buffer})
        buffer[...] = 0
        assert float(started["y:0"]) == expected


def test_threads_share_a_program(program):  # "Array has been deleted"
    fed = feeds()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        losses = list(pool.map(lambda _: float(program.run(fed)["loss:0"]), range(40)))
    program.restore(initial())
    assert sorted(losses) == sorted(float(program.run(fed)["loss:0"]) for _ in range(40))


def test_ctrl_c_leaves_the_state_of_a_completed_step(program):  # "Array has been deleted"
    program.run(feeds())
    compiled = program._compiled[None]

    def interrupted(*arguments):
        results = compiled(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        return results

    def run_and_wait():
        program.run(feeds())
        time.sleep(1)  # the interrupt may come late

    program._compiled[None] = interrupted
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_and_wait()
    finally:
        signal.signal(signal.SIGINT, before)
    assert program.state()["global_step"] == initial()["global_step"] + 2


def test_feeds_of_python_numbers_and_of_float64_are_taken(program):
    expected = program.run(feeds())["loss:0"]
    program.restore(initial())
    fed = feeds()
    assert program.run({"x": fed["x:0"].astype(np.float64), "y": fed["y:0"].tolist()})["loss:0"] == expected


def test_state_that_does_not_fit(program):
    with pytest.raises(ConfigError, match="state lacks 1 variables, 'rate' first"):
        program.restore({name: value for name, value in initial().items() if name != "rate"})
    with pytest.raises(ConfigError, match=r"variable 'w' has shape \(2,\), expected \(4, 3\)"):
        program.restore(dict(initial(), w=np.zeros(2, np.float32)))


def test_a_program_that_was_changed_is_not_run(folder):
    with open(folder + "/" + manifest.PROGRAM, "ab") as f:
        f.write(b" ")
    with pytest.raises(ConfigError, match="is not the file that was exported"):
        pjrt.load(folder)


def test_hlo_of_an_earlier_release_is_to_be_exported_again(tmp_path):
    manifest.write(str(tmp_path / "step"), b"", Manifest(ARGUMENTS, RESULTS, kind="hlo"), initial().items())
    with pytest.raises(ConfigError, match="step' holds HLO of an earlier release of npu_shim, which this one does not"):
        pjrt.load(str(tmp_path / "step"), device="cpu")


def test_a_device_that_is_not_there(folder):
    with pytest.raises(ConfigError, match="device 'tpu': JAX sees"):
        pjrt.load(folder, device="tpu")


def test_releases(monkeypatch, caplog):
    monkeypatch.setattr(jax, "__version__", "0.8.3")
    with pytest.raises(ConfigError, match=r"jax 0\.8\.3 is too old, expected 0\.9"):
        jax_compat.require()
    monkeypatch.setattr(jax, "__version__", "9.0.0.dev1")
    with caplog.at_level(logging.WARNING):
        assert jax_compat.require() is jax
    assert "newer than the tested versions" in caplog.text


HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "%s":
            raise ModuleNotFoundError("No module named '%s'", name=name)
sys.meta_path.insert(0, Hidden())
"""


def test_no_tensorflow_is_needed(program, tmp_path):
    np.savez(str(tmp_path / "feeds.npz"), **feeds())
    code = HIDE % ("tensorflow", "tensorflow") + (
        "import numpy, npu_shim.pjrt\n"
        "program = npu_shim.pjrt.load(sys.argv[1], device='cpu')\n"
        "print(float(program.run(dict(numpy.load(sys.argv[2])))['loss:0']), 'tensorflow' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "step"), str(tmp_path / "feeds.npz")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    loss, imported = done.stdout.decode().split()
    assert (float(loss), imported) == (float(program.run(feeds())["loss:0"]), "False")


def test_without_jax_the_error_says_what_to_install(tmp_path):
    code = HIDE % ("jax", "jax") + "import npu_shim.pjrt; npu_shim.pjrt.load(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, check=False)
    assert b"[pjrt]' for CPU or pip install" in done.stderr.splitlines()[-1]


def test_bfloat16_state(tmp_path):
    import ml_dtypes

    value = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    arrays.write(str(tmp_path / "a.npz"), [("a/b", value), ("c", np.float16([1.5]))])
    read = arrays.read(str(tmp_path / "a.npz"))
    assert read["a/b"].dtype == value.dtype
    np.testing.assert_array_equal(read["a/b"], value)
    assert read["c"].dtype == np.float16
