"""Kernels are asked of what will run them: a device's registry, a shipped table, or XLA's."""

import logging

import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.options.ops import kernel_tables
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.graph.kernel_table import ANY_DEVICE, Kernel, to_rows
from npu_shim.rewriter.graphdef import reading as graphs
from npu_shim.rewriter.graphdef import registry
from npu_shim.rewriter.tables.dtypes import BFLOAT16, FLOAT16

MIX = {"precision_mode": "allow_mix_precision"}
IS_1 = tf.__version__.startswith("1.")


def serving(kernels, *devices):
    on_devices = {op: [k for k in listed if k.device in devices] for op, listed in kernels.items()}
    return {op: to_rows(listed) for op, listed in on_devices.items() if listed}


def step():
    """A product and a gray op in a loop of TensorFlow 1."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 8], "x")
        w = tf.get_variable("w", [8, 8], use_resource=True)
        with sessions.control_flow(1):
            looped = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.nn.relu(tf.matmul(y, w))), [0, x])[1]
        tf.identity(tf.reduce_mean(looped), "loss")
    return graph.as_graph_def()


@pytest.fixture
def without_gpu_kernels(monkeypatch):
    """A wheel like tensorflow-cpu: of the kernels of GPUs it has those whose tensors stay on the host."""
    own = {
        op: tuple(k for k in listed if k.device != "GPU" or op == "Identity")
        for op, listed in registry.registered_kernels().items()
    }
    caches = kernel_tables.of, kernel_tables._shipped_gpu_or_own
    monkeypatch.setattr(registry, "registered_kernels", lambda: own)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_the_shipped_table_is_the_registry_of_the_full_wheel():
    if not kernel_tables.has_gpu_kernels():
        pytest.skip("this TensorFlow has no GPU kernels; its full wheel has them even without a GPU")
    ours = "NpuShim"
    kernels = {op: listed for op, listed in registry.registered_kernels().items() if not op.startswith(ours)}
    registered = serving(kernels, "GPU", ANY_DEVICE)
    assert serving(kernel_tables.of_gpu(tf.__version__), "GPU") == registered


@pytest.mark.parametrize(
    ("version", "same_as"), [("1.15.5", "1.15.0"), ("2.9.1", "1.15.5"), ("2.16.0", "2.15.1"), ("1.13.1", "1.15.5")]
)
def test_a_version_without_a_table_takes_the_one_before(version, same_as):
    assert kernel_tables.of_gpu(version) == kernel_tables.of_gpu(same_as)


def test_a_plan_for_a_gpu_needs_no_gpu_kernels(without_gpu_kernels):
    graph_def = step()
    assert not kernel_tables.has_gpu_kernels()
    result, plan = npu_shim.rewrite(graph_def, ["loss"], ["x"], device="GPU", **MIX)
    assert plan.warnings == ()
    assert {d.op for d in plan.decisions() if d.becomes == FLOAT16} >= {"MatMul", "Relu", "Merge"}
    assert result != graph_def


def test_a_plan_for_a_cpu_takes_no_kernel_of_a_gpu(without_gpu_kernels):
    kernels = kernel_tables.of("CPU").by_op["MatMul"]
    devices = {kernel.device for kernel in kernels if not kernel.device.startswith("XLA_")}  # once XLA has compiled
    assert devices == {"CPU", "GPU"}  # for nodes that name a GPU
    own = [k for k in registry.registered_kernels()["MatMul"] if k.device == "CPU"]
    assert [k for k in kernels if k.device == "CPU"] == own


@pytest.mark.skipif(IS_1, reason="TensorFlow 1 compiles no step as a whole")
def test_what_is_compiled_as_a_whole_is_lowered_alike_by_every_wheel(without_gpu_kernels, monkeypatch):
    plans = [npu_shim.compile_step(step(), ["loss"], ["x"], device=device, **MIX).plan for device in ("CPU", "GPU")]
    monkeypatch.setattr(registry, "registered_kernels", dict)  # not one kernel of a device
    kernel_tables._shipped_gpu_or_own.cache_clear()
    plans.append(npu_shim.rewrite(step(), ["loss"], ["x"], device="XLA", **MIX)[1])
    lowered = [sorted(d.op for d in plan.decisions() if d.becomes == FLOAT16) for plan in plans]
    assert lowered[0] == lowered[1] == lowered[2]
    assert {d.op for d in plans[0].decisions() if d.becomes == FLOAT16} >= {"MatMul", "Relu", "Merge"}


@pytest.mark.skipif(IS_1, reason="TensorFlow 1 compiles no step as a whole")
def test_xla_has_low_kernels_for_what_the_mixed_modes_lower():
    table = kernel_tables.of("XLA")
    with tf.Graph().as_default() as graph:
        tf.matmul(tf.nn.relu(tf.placeholder(tf.float32, [2, 2])), tf.ones([2, 2]))
    view = graphs.read(graph.as_graph_def())
    for node in (node for node in view.nodes if node.op in ("MatMul", "Relu")):
        assert table.runs(node.layout, "/device:GPU:0", (FLOAT16,))
        assert table.runs(node.layout, "", (BFLOAT16,))
    assert "PyFunc" not in table.by_op


@pytest.mark.skipif(not IS_1, reason="TensorFlow 2 compiles steps with kernels of its own XLA")
def test_tensorflow_1_lowers_for_steps_that_jax_compiles():
    plan = npu_shim.rewrite(step(), ["loss"], device="XLA", **MIX)[1]
    assert {d.op for d in plan.decisions() if d.becomes == FLOAT16} >= {"MatMul", "Relu", "Merge"}


def test_another_device_is_an_error_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"device is 'gpu', expected one of CPU, GPU, XLA \(did you mean 'GPU'\?\)"):
        npu_shim.rewrite(step(), ["loss"], device="gpu", **MIX)


@pytest.fixture
def nothing_runs_low(monkeypatch):
    def only(device):
        return kernel_tables.KernelTable({"MatMul": (Kernel(ANY_DEVICE, (("T", frozenset({1})),)),)}, device)

    monkeypatch.setattr(kernel_tables, "of", only)


SAID = "allow_mix_precision lowers nothing: none of 1 slots that it should: no low-precision kernel on its device (1)"


def test_a_mode_that_lowers_nothing_says_why(nothing_runs_low):
    _, plan = npu_shim.rewrite(step(), ["loss"], ["x"], **MIX)
    assert plan.warnings == (SAID,)
    _, plan = npu_shim.rewrite(step(), ["loss"], ["x"], precision_mode="must_keep_origin_dtype", profile="gpu")
    assert plan.warnings == ()


@pytest.mark.skipif(IS_1, reason="TensorFlow 1 compiles no step as a whole")
def test_compile_step_says_that_nothing_is_lowered(nothing_runs_low, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    npu_shim.compile_step(step(), ["loss"], ["x"], **MIX)
    assert [record.message for record in caplog.records] == ["npu_shim: " + SAID]


@pytest.mark.skipif(IS_1, reason="TensorFlow 1 compiles no step as a whole")
def test_compile_step_says_what_watches_sessions_only(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    npu_shim.compile_step(step(), ["loss"], ["x"], enable_dump=True, profiling_mode=True, **MIX)
    said = [record.getMessage() for record in caplog.records if "has no effect in a step" in record.getMessage()]
    assert [text.split()[1] for text in said] == ["enable_dump", "profiling_mode"]


def test_a_graph_without_ops_to_lower_says_nothing():
    with tf.Graph().as_default() as graph:
        tf.exp(tf.placeholder(tf.float32, [2], "x"), "y")
    assert npu_shim.rewrite(graph.as_graph_def(), ["y"], **MIX)[1].warnings == ()
