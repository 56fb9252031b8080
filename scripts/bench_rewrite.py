"""The rewrite beside TensorFlow's own AMP pass: seconds, casts and low-precision matrix ops, side by side in one run.

    python scripts/bench_rewrite.py [--only NAMES] [--alone NAMES] [--repeats N] [--write FILE]

Each graph goes from GraphDef bytes to GraphDef bytes, N times each way in turn: through npu_shim.rewrite, and through
TensorFlow's offline Grappler with no optimizer and with auto_mixed_precision only, on a virtual GPU (the full
tensorflow wheel has the GPU kernels' registrations that the pass asks for). Medians are compared. The graphs are the
training graphs of tests/reference and the synthetic ones of bench_graphs.py. Those of --alone are rewritten by us
alone: on thousands of TensorList ops Grappler takes hours.
"""

import argparse
import collections
import functools
import gc
import json
import lzma
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_IGNORE_PERFORMANCE"] = "1"

import bench_graphs
import bench_tables
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.walks import reached

TRAINING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "reference", "graphs")
HEAVY = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D")
HEAVY += ("Conv2DBackpropInput", "Conv2DBackpropFilter")
LOW = (tf.float16.as_datatype_enum, tf.bfloat16.as_datatype_enum)
FLOAT32 = tf.float32.as_datatype_enum
SLOW = 30.0  # seconds: what takes Grappler longer is measured once


def ours(data, fetches):
    """Seconds and GraphDef of our rewrite."""
    start = time.perf_counter()
    graph_def, _ = npu_shim.rewrite(
        tf.GraphDef.FromString(data), fetches, device="GPU", precision_mode="allow_mix_precision"
    )
    graph_def.SerializeToString()
    return time.perf_counter() - start, graph_def


class Grappler:
    """TensorFlow's offline Grappler on one graph and a virtual GPU of compute capability 8.0."""

    def __init__(self, data, fetches):
        graph_def = tf.GraphDef.FromString(data)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
            self._meta_graph = tf.train.export_meta_graph(graph=graph)
        for fetch in fetches:
            self._meta_graph.collection_def["train_op"].node_list.value.append(fetch.split(":")[0])
        self._cluster = tf_internals.virtual_gpu_cluster()

    def run(self, optimizer):
        """Seconds and GraphDef with one optimizer on, or "none"."""
        config = tf.ConfigProto()
        rewrites = config.graph_options.rewrite_options
        rewrites.min_graph_nodes = -1
        rewrites.meta_optimizer_iterations = 1
        rewrites.optimizers.append(optimizer)
        start = time.perf_counter()
        graph_def = tf_internals.optimize_offline(config, self._meta_graph, self._cluster)
        return time.perf_counter() - start, graph_def


def measure(data, fetches, repeats, alone):
    """Median seconds of ours, and unless `alone` of Grappler with and without its pass, in turn; rewritten graphs."""
    runs = [("ours", functools.partial(ours, data, fetches))]
    if not alone:
        grappler = Grappler(data, fetches)
        runs.append(("without", functools.partial(grappler.run, "none")))
        runs.append(("with", functools.partial(grappler.run, "auto_mixed_precision")))
    seconds = {name: [] for name, _ in runs}
    results = {}
    for _ in range(repeats + 1):  # the first is a warm-up
        for name, run in runs:
            gc.collect()
            took, results[name] = run()
            seconds[name].append(took)
        if max(map(max, seconds.values())) > SLOW:
            break
    medians = {name: statistics.median(taken[1:] or taken) for name, taken in seconds.items()}
    return medians, results["ours"], results.get("with")


def needed(graph_def, fetches):
    """Names of the nodes that a step runs."""
    nodes = {node.name: node for node in graph_def.node}
    starts = [fetch.split(":")[0] for fetch in fetches]
    return set(reached(starts, lambda name: [text.lstrip("^").split(":")[0] for text in nodes[name].input]))


def is_cast(one, other):
    """Whether it leads from float32 to low precision or back; dtypes as numbers."""
    return FLOAT32 in (one, other) and (one in LOW or other in LOW)


def counted(graph_def, fetches):
    """Casts between float32 and low precision, in the graph and in what a step runs; low and all matrix ops."""
    top = {node.name for node in graph_def.node}
    run = needed(graph_def, fetches)
    counts = collections.Counter()
    for node in [*graph_def.node, *_called(graph_def)]:
        source, target = node.attr["SrcT"].type, node.attr["DstT"].type
        if node.op == "Cast" and is_cast(source, target):
            counts["down" if target in LOW else "up"] += 1
            counts["run"] += node.name in run or node.name not in top
        if node.op in HEAVY:
            counts["heavy"] += 1
            counts["low"] += node.attr["T"].type in LOW
    return counts


def _called(graph_def):
    """Nodes of the functions that the graph calls, each function once."""
    library = {function.signature.name: function for function in graph_def.library.function}
    waiting, seen = list(graph_def.node), set()
    while waiting:
        node = waiting.pop()
        called = [value.func.name for value in node.attr.values() if value.HasField("func")]
        called += [f.name for value in node.attr.values() for f in value.list.func]
        for name in ({*called, node.op} & set(library)) - seen:
            seen.add(name)
            yield from library[name].node_def
            waiting.extend(library[name].node_def)


def cast_megabytes(graph_def, fetches, feeds):
    """Megabytes that the casts of a step write, as far as shapes are known; feeds: name -> shape."""
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    for node in copy.node:
        if node.op == "Placeholder" and node.name in feeds:
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(feeds[node.name]).as_proto())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(copy, name="")
    ops = [graph.get_operation_by_name(name) for name in needed(graph_def, fetches)]
    outputs = [
        op.outputs[0]
        for op in ops
        if op.type == "Cast" and is_cast(op.inputs[0].dtype.as_datatype_enum, op.outputs[0].dtype.as_datatype_enum)
    ]
    return sum((output.shape.num_elements() or 0) * output.dtype.size for output in outputs) / 1e6


HEADER = (
    "| graph | nodes | ours s | AMP alone s | with s | ours / with | ours / AMP | casts ours | casts AMP | "
    "in a step ours | AMP | MB cast ours | AMP | low matrix ops ours | AMP |"
)


READING = """
Seconds are medians, from GraphDef bytes to GraphDef bytes; "AMP alone" is Grappler with its AMP pass minus without it,
"with s" the whole call. Casts are those between float32 and low precision: in the whole file, with the branches of
gradients that nobody fetches, and "in a step" those that the fetches need. "MB cast" is what the casts of a step write.

Our decisions look upstream only, so that another set of fetches computes the same bits. TensorFlow's pass also looks at
who reads: an op that no white-listed op is behind stays float32 there, until somebody fetches something else. In BERT
that saves it a cast of an activation in the gradient of each GELU.
"""


def row(name, data, fetches, feeds, repeats, alone=False):
    """One line of the table."""
    medians, our_graph, their_graph = measure(data, fetches, repeats, alone)
    mine, theirs = (cells(graph, fetches, feeds) for graph in (our_graph, their_graph))
    both = [cell for pair in zip(mine, theirs) for cell in pair]
    nodes = len(tf.GraphDef.FromString(data).node)
    return "| %s |" % " | ".join([name, str(nodes), *times(medians), *both])


def times(medians):
    """The cells of seconds and their ratios."""
    ours = "%.3f" % medians["ours"]
    if "with" not in medians:
        return [ours, *["-"] * 4]
    alone = medians["with"] - medians["without"]
    share = "%.2f" % (medians["ours"] / alone) if alone > 0 else "-"
    return [ours, "%.3f" % alone, "%.3f" % medians["with"], "%.2f" % (medians["ours"] / medians["with"]), share]


def cells(graph_def, fetches, feeds):
    """What is counted in a rewritten graph: casts, casts in a step, megabytes of those, low matrix ops."""
    if graph_def is None:
        return ["-"] * 4
    counts = counted(graph_def, fetches)
    casts, low = "%d + %d" % (counts["down"], counts["up"]), "%d of %d" % (counts["low"], counts["heavy"])
    return [casts, str(counts["run"]), "%.0f" % cast_megabytes(graph_def, fetches, feeds) if feeds else "", low]


def training_graphs():
    """(name, GraphDef bytes, fetches, feeds) of every training graph of the tests."""
    with open(os.path.join(TRAINING, "graphs.json")) as f:
        described = json.load(f)
    for name, about in sorted(described.items()):
        with lzma.open(os.path.join(TRAINING, name + ".pb.xz")) as f:
            feeds = {tensor.split(":")[0]: shape for tensor, (_, *shape) in about["feeds"].items()}
            yield name, f.read(), [about["loss"], about["train_op"]], feeds


def main(argv):
    """Measures and prints; writes the table where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of graphs, separated by commas")
    parser.add_argument("--alone", default="", help="names of graphs that Grappler does not get")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", help="file to write the table to")
    args = parser.parse_args(argv)
    tf.disable_v2_behavior()
    graphs = [*training_graphs(), *bench_graphs.graphs()]
    wanted = args.only and args.only.split(",")
    lines = [
        *bench_tables.where(),
        "",
        HEADER,
        "|" + " --- |" * (HEADER.count("|") - 1),
    ]
    print("\n".join(lines), flush=True)
    for name, data, fetches, feeds in graphs:
        if not wanted or name in wanted:
            graph = data() if callable(data) else data
            lines.append(row(name, graph, fetches, feeds, args.repeats, name in args.alone.split(",")))
            print(lines[-1], flush=True)
            if args.write:
                with open(args.write, "w") as f:
                    f.write("\n".join(lines) + "\n" + READING)


if __name__ == "__main__":
    main(sys.argv[1:])
