"""CPU seconds from a training graph's bytes to a lowered program of the interpreter of JAX.

    python scripts/bench_step_preparation.py FOLDER [--graphs bert_tiny_train,resnet50_train] [--repeats 3]

FOLDER has graphs.json and NAME.pb.gz, see there. Needs TensorFlow and JAX in one Python. It begins with the graph's
bytes, in float32, and ends with StableHLO. Three parts are told apart: TensorFlow's import of the bytes, which a
session's graph has behind it; what is done once for a step (pruning, rewrite, its variables); and what is done for each
set of feed shapes.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
FLOAT32 = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu"}
OPEN = {"ids:0": (8, 32), "targets:0": (8, 32), "lengths:0": (8,)}  # sizes of feeds that are open
LENGTHS = {"lengths:0": [32, 31, 30, 20, 16, 8, 4, 2]}  # values that XLA must know


def imported(content):
    """The Source of a graph's bytes."""
    import tensorflow.compat.v1 as tf

    from npu_shim.xla.sources import Source

    return Source.of(tf.GraphDef.FromString(content))


def prepared(source, entry):
    """The Prepared of a graph's step."""
    from npu_shim.xla import step_function

    feeds = {name: OPEN.get(name, shape) for name, (_, *shape) in entry["feeds"].items() if name not in LENGTHS}
    fixed = {name: value for name, value in LENGTHS.items() if name in entry["feeds"]}
    fetches = [entry["loss"], entry["train_op"]]
    return step_function.prepare(source.of_step(fetches), fetches, feeds, fixed, None, "GPU", **FLOAT32)


def lowered(step):
    """Lowers a Prepared for a GPU."""
    from npu_shim.step import lowering
    from npu_shim.xla import interpreted

    shapes = [tuple(feed.shape.as_list()) for feed in step.feeds.values()]
    feeds = [[feed.name, feed.dtype.name, shape] for feed, shape in zip(step.feeds.values(), shapes)]
    state = [[variable.name, variable.dtype.name, variable.shape] for variable in step.state]
    content = interpreted.of(step.on("gpu"), shapes).content
    done = lowering.lowered(content, feeds, state, {}, "gpu", "highest")
    if done.refusal:
        sys.exit(done.refusal)


def turn(content, entry):
    """CPU seconds of the three parts."""
    times = [time.process_time()]
    source = imported(content)
    times.append(time.process_time())
    step = prepared(source, entry)
    times.append(time.process_time())
    lowered(step)
    times.append(time.process_time())
    return [end - start for start, end in zip(times, times[1:])]


def rows(folder, names, repeats):
    """Yields the lines of a table."""
    entries = json.loads((folder / "graphs.json").read_text())
    for name in names:
        content, entry = gzip.decompress((folder / (name + ".pb.gz")).read_bytes()), entries[name]
        turns = [turn(content, entry) for _ in range(repeats + 1)][1:]
        yield [name, str(entry["nodes"]), *("%.2f" % statistics.median(column) for column in zip(*turns))]


def main():
    """Reads the command line, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--graphs", default="bert_tiny_train,resnet50_train,lstm_lm_train,bert_large_train")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", help="file to write the table to")
    given = parser.parse_args()
    import bench_tables
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    columns = ["graph", "nodes", "import, s", "once, s", "for each set of shapes, s"]
    bench_tables.table(columns, rows(given.folder, given.graphs.split(","), given.repeats), given.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
