"""CPU seconds that preparing a step takes, in several checkouts side by side in one run.

    python scripts/bench_preparation.py CHECKOUT CHECKOUT ... [--steps 128] [--repeats 5] [--write FILE]

Two tasks: an unrolled LSTM of two layers with Adam, from GraphDef to the packed graph that JAX interprets; and the
rewrite of BERT-large's training graph, from bytes to bytes. Each checkout has a process of its own, and the processes
take turns. The others are compared with the first one: the median of the ratios of each turn.
"""

import argparse
import gc
import lzma
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BERT = ROOT / "tests" / "reference" / "graphs" / "bert_large_train.pb.xz"
FETCHES = ["loss:0", "group_deps_1"]
TASKS = {"LSTM": "from GraphDef to the packed graph", "BERT-large": "rewrite, from bytes to bytes"}


def lstm(steps):
    """Session, fetches and feeds of a training step of an LSTM that is unrolled."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [8, steps, 32], "x"), tf.placeholder(tf.int32, [8], "y")
        cells = [tf.nn.rnn_cell.BasicLSTMCell(64) for _ in range(2)]
        outputs, _ = tf.nn.static_rnn(tf.nn.rnn_cell.MultiRNNCell(cells), tf.unstack(x, axis=1), dtype=tf.float32)
        logits = tf.matmul(outputs[-1], tf.get_variable("w", [64, 10]))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train = tf.train.AdamOptimizer(1e-3).minimize(loss)
        session = tf.Session(graph=graph)
        session.run(tf.global_variables_initializer())
    return session, [loss, train], [x, y]


def preparing(steps):
    """A function that returns the CPU seconds of one preparation."""
    from npu_shim.xla import step_function
    from npu_shim.xla.sources import Source

    session, fetches, feeds = lstm(steps)
    source = Source.of(session)

    def once():
        start = time.process_time()
        mode = {"precision_mode": "allow_mix_precision_bf16"}
        step_function.prepare(source, fetches, feeds, None, None, "GPU", **mode).packed  # noqa: B018
        return time.process_time() - start

    return once


def rewriting(data):
    """A function that returns the CPU seconds of one rewrite."""
    import tensorflow.compat.v1 as tf

    import npu_shim

    def once():
        start = time.process_time()
        graph_def = tf.GraphDef.FromString(data)
        rewritten, _ = npu_shim.rewrite(graph_def, FETCHES, device="GPU", precision_mode="allow_mix_precision")
        rewritten.SerializeToString()
        return time.process_time() - start

    return once


def serve(steps):
    """Answers each line with a task's name with its CPU seconds."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    with lzma.open(BERT) as f:
        tasks = {"LSTM": preparing(steps), "BERT-large": rewriting(f.read())}
    for once in tasks.values():
        once()
    print("ready", flush=True)
    for line in sys.stdin:
        gc.collect()
        print(tasks[line.strip()](), flush=True)


def opened(checkout, steps):
    """A process that serves a checkout."""
    environment = dict(os.environ, PYTHONPATH=str(pathlib.Path(checkout).resolve()), TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, __file__, "--serve", "--steps", str(steps)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True, bufsize=1
    )


def asked(process, task):
    """The CPU seconds of a task in a process."""
    process.stdin.write(task + "\n")
    return float(process.stdout.readline())


def measured(processes, task, repeats):
    """A list of CPU seconds for each process, taken in turn, forwards and backwards."""
    seconds = [[] for _ in processes]
    for number in range(repeats):
        order = range(len(processes))
        for k in reversed(order) if number % 2 else order:
            seconds[k].append(asked(processes[k], task))
    return seconds


def commit_of(checkout):
    """The commit that a checkout is at."""
    command = ["git", "-C", checkout, "log", "-1", "--format=%h"]
    return subprocess.check_output(command, universal_newlines=True).strip()


def rows(commits, task, seconds):
    """The lines of a table."""
    for commit, taken in zip(commits, seconds):
        ratio = statistics.median(one / other for one, other in zip(taken, seconds[0]))
        cells = (task, commit, statistics.median(taken), min(taken), ratio)
        yield "| %s | %s | %.2f | %.2f | %.2f |" % cells


def main():
    """Reads the command line, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", help="folders of checkouts; the first one is compared with")
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=sorted(TASKS))
    parser.add_argument("--write", help="file to write the table to")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.steps)
    import bench_tables

    lines = [*bench_tables.where(), "", "| task | commit | median s | least s | ratio |", "|---|---|---|---|---|"]
    commits = [commit_of(checkout) for checkout in given.checkouts]
    processes = [opened(checkout, given.steps) for checkout in given.checkouts]
    try:
        for process in processes:
            process.stdout.readline()
        for task in [given.only] if given.only else TASKS:
            lines += rows(commits, task, measured(processes, task, given.repeats))
    finally:
        for process in processes:
            process.kill()
    text = "\n".join(lines) + "\n"
    print(text)
    if given.write:
        pathlib.Path(given.write).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
