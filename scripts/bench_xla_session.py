"""Measures XLA in the session: clusters, share of float ops inside, compile time, recompilations, time of a warm step.

    python scripts/bench_xla_session.py GRAPHS [--steps 10] [--out FILE] [MODEL ...]

GRAPHS is a folder of training graphs with graphs.json and run_graph.py, which makes feeds for them. Each model runs in
a process of its own, in float32: the session without clusters, with clusters, and compile_step, which is XLA alone,
taking turns; every step has other data of the same shapes. What compiles is read from TensorFlow's log.
"""

import argparse
import datetime
import functools
import gzip
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

# by the kind of their variables: reference variables are TensorFlow 1's own, "resource" those that a script asks for
MODELS = {
    "digits": "reference", "digits_resource": "resource", "bert_tiny_train": "reference", "lstm_lm_train": "resource",
    "resnet50_ref_train": "reference", "resnet50_train": "resource",
}  # fmt: skip
# of what takes less than a millisecond a step, and of what takes seconds
STEPS = {"digits": 200, "digits_resource": 200, "resnet50_ref_train": 3, "resnet50_train": 3}
COMPILED = re.compile(r"Compiled (\S+) (\d+) times, compile time: (\d+) us")
MARKED = "FIRST STEP IN THE SESSIONS"  # in the log
FUNCTION = "function"  # stands for the call of one that XLA compiles
# no arithmetic: what only moves, names or stores values
PLUMBING = (
    "Const", "Identity", "IdentityN", "VarHandleOp", "VariableV2", "ReadVariableOp", "Assign", "Enter", "Exit", "Merge",
    "Switch", "NextIteration", "_Arg", "_Retval", "_XlaCompile", "_XlaRun", "_XlaMerge", "Placeholder", "StackV2",
    "StackPushV2", "StackPopV2", "TensorArrayV3", "TensorArrayGradV3", FUNCTION,
)  # fmt: skip
COLUMNS = (
    ("model", "model"), ("variables", "variables"), ("clusters", "clusters"), ("inside", "float ops inside"),
    ("compile_s", "compile time, s"), ("recompiled", "recompiled in %d steps"),
    ("ratio", "marked / unmarked"), ("whole_ratio", "whole step / unmarked"),
    ("unmarked_ms", "step unmarked, ms"), ("marked_ms", "step marked, ms"), ("whole_ms", "whole step, ms"),
)  # fmt: skip


def main():
    """Runs the models one after the other and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs")
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", help="file that the table is written to as well")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_intermixed_args()
    if args.one:
        print(json.dumps(measure(args.graphs, args.one, STEPS.get(args.one, args.steps))))
        return
    rows = [in_own_process(args.graphs, model, args.steps) for model in args.models]
    text = table(rows, args.steps)
    print(text)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(text + "\n")


def in_own_process(graphs, model, steps):
    """Returns the measurements of a model, with those of TensorFlow's log."""
    log = {"TF_CPP_VMODULE": "device_compilation_profiler=1", "TF_CPP_MIN_LOG_LEVEL": "0", "NPU_SHIM_LOG": "off"}
    command = [sys.executable, __file__, graphs, "--steps", str(steps), "--one", model]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **log}, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    row = json.loads(done.stdout.splitlines()[-1])
    compiled = COMPILED.findall(done.stderr.partition(MARKED)[2])
    row["compile_s"] = sum(int(us) for _, _, us in compiled) / 1e6
    row["recompiled"] = sum(int(count) > 1 for _, count, _ in compiled)
    return row


def measure(graphs, model, steps):
    """Returns the clusters of a model, its share of float ops inside of them, and the times of its steps."""
    import tensorflow.compat.v1 as tf

    import npu_shim

    tf.disable_v2_behavior()
    npu_shim.patch()
    graph_def, init, fetches, feeds = load(tf, graphs, model)
    opened = {xla: initialized(tf, graph_def, init, xla) for xla in ("off", "on")}
    whole = whole_step(opened["off"], fetches, feeds)
    print(MARKED, file=sys.stderr, flush=True)
    total, outside = (first_runs(tf, session, fetches, feeds) for session in opened.values())
    calls = {xla: functools.partial(session.run, fetches) for xla, session in opened.items()}
    calls["whole"] = whole
    off, on, whole = medians(calls, feeds, steps)
    arithmetic = {op: count for op, count in total.items() if op not in PLUMBING}
    left = {op: count for op, count in outside.items() if op not in PLUMBING}
    return {
        "model": model,
        "variables": MODELS[model],
        "clusters": outside.get("_XlaCompile", 0) + outside.get(FUNCTION, 0),
        "inside": 1 - sum(left.values()) / sum(arithmetic.values()),
        "unmarked_ms": 1e3 * off,
        "marked_ms": 1e3 * on,
        "whole_ms": whole and 1e3 * whole,
        "ratio": on / off,
        "whole_ratio": whole and whole / off,
        "steps": steps,
    }


def whole_step(session, fetches, feeds):
    """Returns the step as one program, after two runs; None where it cannot be one."""
    import npu_shim
    from npu_shim.rewriter.errors import PlanError

    try:
        step = npu_shim.compile_step(session, fetches, list(feeds(0)))
        for number in range(2):
            step(feeds(number))
    except PlanError as error:
        print(error, file=sys.stderr)
        return None
    return step


def medians(calls, feeds, steps):
    """Returns the median time of each call, in seconds; they take turns. None where there is no call."""
    times = {name: [] for name in calls}
    for number in range(steps):
        fed = feeds(2 + number)
        for name, call in calls.items():
            if call is not None:
                start = time.perf_counter()
                call(fed)
                times[name].append(time.perf_counter() - start)
    return [statistics.median(seconds) if seconds else None for seconds in times.values()]


def initialized(tf, graph_def, init, xla):
    """Returns a session in float32 whose variables have values."""
    config = tf.ConfigProto()
    entry = config.graph_options.rewrite_options.custom_optimizers.add(name="NpuOptimizer")
    options = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu", "npu_shim_xla": xla}
    for key, value in options.items():
        entry.parameter_map[key].s = value.encode()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    session = tf.Session(graph=graph, config=config)
    session.run(init)
    return session


def first_runs(tf, session, fetches, feeds):
    """Runs two steps and returns the number of float ops that ran, by op type; what XLA compiled is among them."""
    seen = tf.RunMetadata()
    session.run(fetches, feeds(0), options=tf.RunOptions(output_partition_graphs=True), run_metadata=seen)
    session.run(fetches, feeds(1))
    counts = {}
    for node in (node for graph in seen.partition_graphs for node in graph.node):
        if "_XlaMustCompile" in node.attr:
            counts[FUNCTION] = counts.get(FUNCTION, 0) + 1
        elif node.op == "_XlaCompile" or any(attr.type == tf.float32.as_datatype_enum for attr in node.attr.values()):
            counts[node.op] = counts.get(node.op, 0) + 1
    return counts


def load(tf, graphs, model):
    """Returns (GraphDef, its init op, what a step fetches, function of a seed to feeds)."""
    if model.startswith("digits"):
        return digits(tf, use_resource=MODELS[model] == "resource")
    with open(os.path.join(graphs, "graphs.json"), encoding="utf-8") as file:
        about = json.load(file)[model]
    with gzip.open(os.path.join(graphs, model + ".pb.gz")) as file:
        graph_def = tf.GraphDef.FromString(file.read())
    spec = importlib.util.spec_from_file_location("run_graph", os.path.join(graphs, "run_graph.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return graph_def, about["init"], [about["loss"], about["train_op"]], lambda seed: varied(module, model, about, seed)


def varied(module, model, about, seed):
    """Feeds of one size; lengths differ from step to step, but for one that is full."""
    import numpy as np

    fed = module.feeds(model, about, seed=seed)
    for name, value in fed.items():
        if "lengths" in name:
            fed[name] = np.maximum(value - np.arange(len(value)) * (seed % 2), 1).astype(value.dtype)
    return fed


def digits(tf, use_resource):
    """A network with two hidden layers, Adam and a loss scale, on batches of 64 digits."""
    import numpy as np

    from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer

    data = np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.npz"))
    images, labels = data["images"].reshape(-1, 64).astype(np.float32) / 16, data["labels"].astype(np.int32)
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [None, 64], "x"), tf.placeholder(tf.int32, [None], "y")
        with tf.variable_scope("net", use_resource=use_resource):
            hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("w1", [64, 128])))
            hidden = tf.nn.relu(tf.matmul(hidden, tf.get_variable("w2", [128, 128])))
            logits = tf.matmul(hidden, tf.get_variable("w3", [128, 10]))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        manager = ExponentialUpdateLossScaleManager(2**15, 1000, use_resource=use_resource)
        NPULossScaleOptimizer(tf.train.AdamOptimizer(1e-3), manager).minimize(loss, name="train")
        tf.global_variables_initializer()

    def feeds(seed):
        pick = np.random.RandomState(seed).randint(0, len(labels), 64)
        return {"x:0": images[pick], "y:0": labels[pick]}

    return graph.as_graph_def(), "init", ["loss:0", "train"], feeds


def table(rows, steps):
    """Returns the table as Markdown, with date, machine, versions and command."""
    import tensorflow as tf

    from npu_shim.session import clusters as xla

    head = [title % steps if "%" in title else title for _, title in COLUMNS]
    shown = [[show(key, row[key]) for key, _ in COLUMNS] for row in rows]
    where = "%s, TensorFlow %s, Python %s, %s, %d CPUs (load %.0f), XLA on the %s" % (
        datetime.date.today().isoformat(), tf.__version__, platform.python_version(), platform.machine(),
        os.cpu_count(), os.getloadavg()[0], xla.accelerator(),
    )  # fmt: skip
    command = "    python scripts/bench_xla_session.py GRAPHS --steps %d" % steps
    lines = ["# XLA in the session", "", where, "", command, ""]
    lines += ["| %s |" % " | ".join(head), "|" + "---|" * len(head)]
    lines += ["| %s |" % " | ".join(cells) for cells in shown]
    others = ["%s %d" % pair for pair in STEPS.items()]
    return "\n".join([*lines, "", "Other numbers of steps: %s." % ", ".join(others)])


def show(key, value):
    """One cell."""
    if value is None:
        return "-"
    if key == "inside":
        return "%.0f %%" % (100 * value)
    return "%.2f" % value if "ratio" in key else "%.1f" % value if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
