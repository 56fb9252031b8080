"""TensorFlow's own pass auto_mixed_precision, run on a GraphDef without a session, and how two rewrites differ.

Full wheels register their GPU kernels on machines without a GPU too, so a virtual GPU is all that the pass needs.
"""

import contextlib
import os

import pytest
import tensorflow.compat.v1 as tf

from npu_shim.options.ops import kernel_tables
from npu_shim.rewriter.graphdef import reading as graphs
from npu_shim.rewriter.tables.dtypes import FLOATS

PREFIX = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
GPU = {"architecture": "8.0", "cuda": "11050", "cudnn": "8302"}
PASSES = {"GPU": "auto_mixed_precision", "CPU": "auto_mixed_precision_cpu"}


VERSIONS = {"2.15": "grappler", "1.15": "grappler_1.15"}
# what the pass calls its lists, now and in 1.15, and what we do
LIST_NAMES = {"allow": "white", "deny": "black", "infer": "gray", "clear": "clear",
              "white": "white", "black": "black", "gray": "gray"}  # fmt: skip


def profile():
    """Name of the profile that follows this TensorFlow's pass; skips the test where none does."""
    version = ".".join(tf.__version__.split(".")[:2])
    if version not in VERSIONS:
        pytest.skip("no profile follows the pass of TensorFlow %s" % tf.__version__)
    return VERSIONS[version]


def available():
    """Skips the test where TensorFlow is not 2.15 with GPU kernels."""
    if profile() != "grappler":
        pytest.skip("held against TensorFlow 2.15's pass, this is %s" % tf.__version__)
    if not kernel_tables.has_gpu_kernels():
        pytest.skip("this TensorFlow has no GPU kernels; its full wheel has them even without a GPU")


def optimized(graph_def, preserved, device="GPU", environment=None, **architecture):
    """Runs the pass.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        preserved: names of tensors or nodes that are fetched.
        device: "GPU", or "CPU" for the variant that makes real float16 ops on CPUs.
        environment: variables without their long prefix, for example {"LEVEL": "TREAT_INFER_AS_DENY"}.
        **architecture: changes of the virtual GPU's properties.

    Returns:
        GraphDef.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.grappler import tf_optimizer  # noqa: TID251

    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        meta = tf.train.export_meta_graph(graph=graph)
    meta.collection_def["train_op"].node_list.value.extend(name.split(":")[0] for name in preserved)
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = 1
    rewrite.optimizers.append(PASSES[device])
    machine = _cluster(device, {**GPU, **architecture})
    with _environment({"EMULATE_FP16": "0", **(environment or {})}):
        return tf_optimizer.OptimizeGraph(config, meta, verbose=False, cluster=machine)


def _cluster(device, properties):
    """A machine; nodes that name no device are on its GPU, if it has one."""
    from tensorflow.core.protobuf import device_properties_pb2
    from tensorflow.python.grappler import cluster  # noqa: TID251

    devices = []
    for kind in ["CPU"] if device == "CPU" else ["CPU", "GPU"]:
        device_properties = device_properties_pb2.DeviceProperties(
            type=kind, frequency=1000, num_cores=64, memory_size=1 << 36, bandwidth=1000000
        )
        if kind == "GPU":
            device_properties.vendor = "NVIDIA"
            device_properties.environment.update(properties)
        name = "/job:localhost/replica:0/task:0/device:%s:0" % kind
        devices.append(device_properties_pb2.NamedDevice(name=name, properties=device_properties))
    return cluster.Cluster(devices=devices)


@contextlib.contextmanager
def _environment(variables):
    before = {PREFIX + name: os.environ.get(PREFIX + name) for name in variables}
    os.environ.update({PREFIX + name: value for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def difference(original, ours, theirs):
    """What two rewrites of a graph do differently: the dtypes of each original node, and each inserted cast.

    Returns:
        Sorted list of lines; empty where both agree.
    """
    names = {node.name for node in original.node}
    (our_dtypes, our_casts), (their_dtypes, their_casts) = (_described(graph, names) for graph in (ours, theirs))
    lines = [
        "%s: ours %s, theirs %s" % (name, our_dtypes.get(name), their_dtypes.get(name))
        for name in names
        if our_dtypes.get(name) != their_dtypes.get(name)
    ]
    lines += ["only ours casts %s to %s for %s" % cast for cast in our_casts - their_casts]
    lines += ["only theirs casts %s to %s for %s" % cast for cast in their_casts - our_casts]
    return sorted(lines)


def _described(graph_def, names):
    """({name: dtypes} of the original nodes, {(tensor, dtype, consumer)} of the inserted casts)."""
    view = graphs.read(graph_def)
    dtypes = {node.name: (node.layout.op, node.dtypes) for node in view.nodes if node.name in names}
    casts = set()
    for node in view.nodes:
        for number, port in enumerate(node.inputs):
            source = view.nodes[port.node]
            if source.name not in names and node.name in names:
                assert source.op == "Cast", source
                tensor = "%s:%d" % (view.nodes[source.inputs[0].node].name, source.inputs[0].port)
                casts.add((tensor, source.dtypes[1], "%s:%d" % (node.name, number)))
    return dtypes, casts


def casts(graph_def, original):
    """(casts to low precision, casts to float32) that were inserted into `original`."""
    names = {node.name for node in original.node}
    added = [node for node in graph_def.node if node.name not in names and node.op == "Cast"]
    up = sum(node.attr["DstT"].type == 1 for node in added)
    assert all(node.attr["SrcT"].type in FLOATS for node in added)
    return len(added) - up, up
