"""What calibration costs: seconds of a training step with and without it, side by side in one process.

    python scripts/bench_calibration.py [MODEL...] [--steps N] [--write FILE]

Two sessions train the same graph in the same mode, one of them calibrated as by `npu-shim run --calibrate`, and take
turns step by step. The first step of each group of tensors is planned anew, and takes the seconds of the last column;
the steps after that are compared by their medians.
"""

import argparse
import collections
import os
import statistics
import sys
import tempfile
import time

import bench_cpu
import bench_tables
import tensorflow.compat.v1 as tf

from npu_shim.session.observers import calibration

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import reference_material

MODE = "allow_mix_precision"
Variable = collections.namedtuple("Variable", "op")
GRAPHS = ("bert_tiny_train", "lstm_lm_train", "crnn_ctc_train")
COLUMNS = ["model", "float tensors", "groups", "step", "calibrated", "ratio", "a group's first step"]


def digits():
    """(fetches, feed_dict, init op) of the small convolution network on digits."""
    fetches, feeds = bench_cpu.digits()
    return fetches, bench_cpu.values(feeds), tf.global_variables_initializer().name


def reference(name):
    """(fetches, feed_dict, init op) of a training graph of the reference material."""
    about = reference_material.about(name)
    tf.import_graph_def(reference_material.training_graph(name), name="")
    for operation in tf.get_default_graph().get_operations():  # a GraphDef does not say what is trained
        if operation.type in ("VarHandleOp", "VariableV2") and operation.get_attr("dtype") == tf.float32:
            tf.add_to_collection(tf.GraphKeys.TRAINABLE_VARIABLES, Variable(operation))
    return [about["loss"], about["train_op"]], reference_material.feeds(name), about["init"]


def session(build, folder):
    """(session, fetches, feed_dict) of a model in MODE; calibrated into `folder`, "" for not."""
    os.environ[calibration.SWITCH], os.environ[calibration.FOLDER] = str(10**9), folder
    with tf.Graph().as_default() as graph:
        fetches, feeds, init = build()
    opened = bench_cpu.session(graph, MODE, init)
    return opened, fetches, feeds


def measured(name, steps):
    """The row of a model.

    Args:
        name: "digits" or one of GRAPHS.
        steps: steps to time of each session, after the first ones.
    """
    build = digits if name == "digits" else lambda: reference(name)
    with tempfile.TemporaryDirectory() as folder:
        plain, calibrated = session(build, ""), session(build, folder)
        recorder = calibration._recorders[id(calibrated[0].graph)]
        taken = {False: [], True: []}
        groups = None
        while groups is None or len(taken[True]) < groups + 1 + steps:
            for which, (opened, fetches, feeds) in ((False, plain), (True, calibrated)):
                start = time.perf_counter()
                opened.run(fetches, feeds)
                taken[which].append(time.perf_counter() - start)
            if groups is None:
                groups = _groups(recorder, calibrated)
        calibration._recorders.clear()  # nothing is to be written
        for opened in (plain[0], calibrated[0]):
            opened.close()
    if not groups:
        raise SystemExit("%s: no training step is found in its graph" % name)
    before, after = (statistics.median(taken[which][groups + 1 :]) for which in (False, True))
    first = statistics.mean(taken[True][:groups])
    times = ["%.2f ms" % (1e3 * before), "%.2f ms" % (1e3 * after), "%.2f" % (after / before)]
    return [name, "%d" % len(recorder.measured), "%d" % groups, *times, "%.1f s" % first]


def _groups(recorder, calibrated):
    """How many groups of tensors the calibrated session takes turns with."""
    opened, fetches, feeds = calibrated
    return len(recorder._make_groups(calibration.training.run(opened.graph, fetches, feeds).fetched, feeds))


def main():
    """Measures, prints, and writes the table where --write says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", metavar="MODEL", nargs="*", help="digits, %s; all without" % ", ".join(GRAPHS))
    parser.add_argument("--steps", type=int, default=60, help="steps to time of each session")
    parser.add_argument("--write", help="a Markdown file to write the table to")
    args = parser.parse_args()
    unknown = [name for name in args.models if name not in ("digits", *GRAPHS)]
    if unknown:
        parser.error("no model %s, expected of digits, %s" % (", ".join(unknown), ", ".join(GRAPHS)))
    rows = (measured(name, args.steps) for name in args.models or ("digits", *GRAPHS))
    bench_tables.table(COLUMNS, rows, args.write, ["# What calibration costs a training step", ""])


if __name__ == "__main__":
    main()
