"""What the shim costs: Python time of a trained step with and without it, side by side, and the seconds of a rewrite.

    python scripts/bench_session.py [--steps N] [--graph FILE --fetches A,B] [--write FILE]

The step is measured on a graph so small that sess.run's own Python time dominates; both sessions run the same float32
graph (the shim's with a profile and mode that change nothing), alternating in blocks, and the medians are compared.
"""

import argparse
import os
import statistics
import time

import bench_tables
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.cli.graphs import graph_file
from npu_shim.pjrt import atomic_write


def session(graph, shimmed):
    """A session on `graph`, through NpuOptimizer or not, after its first step."""
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    if shimmed:
        entry = config.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = "NpuOptimizer"
        entry.parameter_map["precision_mode"].s = b"must_keep_origin_dtype"
        entry.parameter_map["npu_shim_profile"].s = b"gpu"
        npu_shim.patch()
    else:
        npu_shim.unpatch()
    opened = tf.Session(graph=graph, config=config)
    opened.run("init")
    return opened


def step_seconds(steps):
    """Median seconds of a step without and with the shim, from alternating blocks of `steps` steps."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        w = tf.get_variable("w", [4, 4], use_resource=True)
        loss = tf.reduce_sum(tf.matmul(x, w), name="loss")
        tf.train.GradientDescentOptimizer(0.0).minimize(loss, name="step")
        tf.global_variables_initializer()
    feeds = {"x:0": [[1.0] * 4] * 4}
    sessions = {False: session(graph, False), True: session(graph, True)}
    blocks = {False: [], True: []}
    for _ in range(15):
        for shimmed, opened in sessions.items():
            (npu_shim.patch if shimmed else npu_shim.unpatch)()  # the patch is the process's, not the session's
            opened.run(["loss:0", "step"], feeds)
            start = time.perf_counter()
            for _ in range(steps):
                opened.run(["loss:0", "step"], feeds)
            blocks[shimmed].append((time.perf_counter() - start) / steps)
    return statistics.median(blocks[False]), statistics.median(blocks[True])


def rewrite_seconds(path, fetches):
    """Nodes of a graph file, and the seconds of its rewrite: GraphDef bytes in, verified bytes out (median of 5)."""
    graph, _ = graph_file.read(path)
    data = graph.SerializeToString()
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        rewritten, _ = npu_shim.rewrite(
            tf.GraphDef.FromString(data), fetches, precision_mode="allow_mix_precision", device="GPU"
        )
        rewritten.SerializeToString(deterministic=True)
        taken.append(time.perf_counter() - start)
    return len(graph.node), statistics.median(taken)


def main():
    """Measures, prints, and writes the result where --write says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="steps a block")
    parser.add_argument("--graph", help="a graph file whose rewrite is timed")
    parser.add_argument("--fetches", default="", help="its fetches")
    parser.add_argument("--write", help="file for the result")
    args = parser.parse_args()
    plain, shimmed = step_seconds(args.steps)
    lines = [
        *bench_tables.where(),
        "sess.run of a trained step: %.1f us without, %.1f us with the shim, ratio %.3f"
        % (plain * 1e6, shimmed * 1e6, shimmed / plain),
    ]
    if args.graph:
        nodes, seconds = rewrite_seconds(args.graph, args.fetches.split(","))
        lines.append("rewrite of %s: %d nodes in %.2f s" % (os.path.basename(args.graph), nodes, seconds))
    print("\n".join(lines))
    if args.write:
        with atomic_write.file(args.write) as f:
            f.write(("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
