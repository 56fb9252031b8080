#!/usr/bin/env python3
"""CPU seconds that XLA takes for the programs of two checkouts, by turns.

    scripts/bench_compilation.py export OUT --checkout DIR --graphs FOLDER [--jax PYTHON]
    scripts/bench_compilation.py compile OUT OTHER --repeats 3 [--write FILE]

`export` writes OUT/NAME for each model of the benchmark (small, in three precisions) and each graph of FOLDER (it has
graphs.json and NAME.pb.gz), as the project in DIR makes them; needs TensorFlow. `compile` compiles for a CPU what both
folders have, and gives the ratio of OTHER's seconds; needs JAX and TensorFlow in one Python. A graph that a checkout
does not export is told, and left out.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
FORMS = {
    "float32": (False, {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}),
    "float16": (True, {"precision_mode": "allow_mix_precision"}),
    "bfloat16": (False, {"precision_mode": "allow_mix_precision_bf16"}),
}
OPEN = {"ids:0": (8, 32), "targets:0": (8, 32), "labels/values:0": (24,), "labels/indices:0": (24, 2)}  # open sizes
KNOWN = {  # values that XLA must know
    "lengths:0": [32, 31, 30, 20, 16, 8, 4, 2],
    "labels/shape:0": [8, 3],
    "labels/indices:0": [[row, column] for row in range(8) for column in range(3)],
}
LARGE = {"bert_large_train", "resnet50_ref_train"}  # minutes each


def use(checkout):
    """Makes npu_shim that of a checkout, as `bench_xla` does on a machine where it is not installed."""
    sys.path[:1] = [str(checkout), str(checkout / "scripts")]
    import npu_shim

    npu_shim.__path__.append(str(checkout))


def steps(folder):
    """Yields (name, graph, fetches, feeds name -> shape, constants, options)."""
    import bench_models
    import bench_xla_export
    import tensorflow.compat.v1 as tf

    for model, (sizes,) in bench_xla_export.SMALL.items():
        for form, (scaled, options) in FORMS.items():
            built = bench_models.build(model, sizes, scaled)
            shapes = {name: shape for name, (_, shape, _) in built.feeds.items()}
            yield "%s %s" % (model, form), built.graph, built.fetches, shapes, {}, options
    for name, entry in json.loads((folder / "graphs.json").read_text()).items():
        if name in LARGE:
            continue
        content = tf.GraphDef.FromString(gzip.decompress((folder / (name + ".pb.gz")).read_bytes()))
        shapes = {feed: OPEN.get(feed, shape) for feed, (_, *shape) in entry["feeds"].items() if feed not in KNOWN}
        known = {feed: KNOWN[feed] for feed in entry["feeds"] if feed in KNOWN}
        yield name, content, [entry["loss"], entry["train_op"]], shapes, known, FORMS["float32"][1]


def export(given):
    """Writes the programs of a checkout."""
    use(given.checkout.resolve())
    import tensorflow.compat.v1 as tf

    from npu_shim import export as exporting

    tf.disable_v2_behavior()
    for name, graph, fetches, shapes, known, options in steps(given.graphs):
        out = str(given.out / name)
        if os.path.exists(out):
            continue
        try:
            exporting.export(graph, fetches, shapes, out, known, jax=given.jax, device="GPU", **options)
        except Exception as reason:  # the others are still of use
            print("%s: %s" % (name, str(reason).partition("\n")[0]), flush=True)


def turn(jax, folder):
    """CPU seconds of all threads for one compilation by XLA."""
    from npu_shim.pjrt import manifest
    from npu_shim.pjrt.placement import Placement
    from npu_shim.pjrt.program import Program

    described = manifest.read(folder)
    placement = Placement((jax.devices("cpu")[0],))
    program = Program(jax, described, manifest.program(folder, described, "cpu"), placement)
    start = time.process_time()
    program.compile()
    return time.process_time() - start


def rows(one, other, repeats):
    """Yields the lines of the table, and last the median of the ratios."""
    import jax

    ratios = []
    names = sorted({path.name for path in one.iterdir()} & {path.name for path in other.iterdir()})
    turn(jax, str(one / names[0]))  # the first one starts XLA
    for name in names:
        turns = [(turn(jax, str(one / name)), turn(jax, str(other / name))) for _ in range(repeats)]
        before, after = (statistics.median(column) for column in zip(*turns))
        ratios.append(after / before)
        yield [name, "%.2f" % before, "%.2f" % after, "%.2f" % ratios[-1]]
    yield ["median of the ratios", "", "", "%.2f" % statistics.median(ratios)]


def compile_all(given):
    """Compiles, prints and writes."""
    use(HERE.parent)
    import bench_tables

    columns = ["step", "%s, s" % given.out.name, "%s, s" % given.other.name, "ratio"]
    bench_tables.table(columns, rows(given.out, given.other, given.repeats), given.write)


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    command = commands.add_parser("export")
    command.add_argument("out", type=pathlib.Path)
    command.add_argument("--checkout", type=pathlib.Path, default=HERE.parent)
    command.add_argument("--graphs", type=pathlib.Path, required=True)
    command.add_argument("--jax")
    command.set_defaults(run=export)
    command = commands.add_parser("compile")
    command.add_argument("out", type=pathlib.Path)
    command.add_argument("other", type=pathlib.Path)
    command.add_argument("--repeats", type=int, default=3)
    command.add_argument("--write")
    command.set_defaults(run=compile_all)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
