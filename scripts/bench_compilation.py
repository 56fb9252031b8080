#!/usr/bin/env python3
"""CPU seconds that XLA takes for the programs of two checkouts, by turns.

    scripts/bench_compilation.py export OUT --checkout DIR --graphs FOLDER [--jax PYTHON]
    scripts/bench_compilation.py record OUT NETWORK... --checkout DIR --zoo DIR --jax PYTHON
    scripts/bench_compilation.py record OUT NETWORK... --checkout DIR --repositories DIR --jax PYTHON
    scripts/bench_compilation.py compile OUT OTHER --repeats 3 [--write FILE]

`export` writes OUT/NAME for each model of the benchmark (small, in three precisions) and each graph of FOLDER (it has
graphs.json and NAME.pb.gz), as the project in DIR makes them; needs TensorFlow. A graph that a checkout does not export
is told, and left out. `record` runs networks of the checkout's suites (`scripts/model_zoo --list` has their names) with
the engine, and writes to OUT/NETWORK what its workers gave to XLA for steps; it runs in the Python of the suite.
`compile` compiles for a CPU what both folders have, and gives the ratio of OTHER's seconds; of a network with several
programs it sums them up; needs JAX.
"""

import argparse
import gzip
import json
import os
import pathlib
import shlex
import statistics
import subprocess
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
RECORDED = ("*/*_jit_step_compile.mlir", "*/*_jit_loop_compile.mlir")  # a worker compiles small ones besides
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


def record(given):
    """Runs networks of a checkout's suites, and keeps what JAX dumps of their steps."""
    suite = [sys.executable, str(given.checkout.resolve() / "tests" / "model_zoo" / "suite.py")]
    where = ["--zoo", given.zoo] if given.zoo else ["--repositories", given.repositories, "--ways", "engine"]
    for name in given.networks:
        folder = (given.out / name.replace("/", " ")).resolve()
        folder.mkdir(parents=True)
        worker = folder / "python"  # each worker has a folder of its own: the files of all have the same names
        worker.write_text('#!/bin/sh\nJAX_DUMP_IR_TO=%s/$$ exec %s "$@"\n' % (shlex.quote(str(folder)), given.jax))
        worker.chmod(0o755)
        own = {**os.environ, "NPU_SHIM_ENGINE": "pjrt", "NPU_SHIM_JAX": str(worker)}
        subprocess.run([*suite, name, *where], env=own, check=False)  # what was compiled is of use where it failed


def turn(jax, folder):
    """CPU seconds of all threads for one compilation by XLA of all programs in a folder."""
    recorded = sorted(path for names in RECORDED for path in pathlib.Path(folder).glob(names))
    return sum(_of_text(jax, path.read_text()) for path in recorded) if recorded else _of_exported(jax, folder)


def _of_text(jax, text):
    """CPU seconds for a program that `record` has written."""
    from jax.extend import backend

    from npu_shim.pjrt import jax_compat

    device = jax.devices("cpu")[0]
    own = jax_compat.compiler_options("cpu")
    options = backend.get_compile_options(1, 1, device_assignment=[[device.id]], env_options_overrides=own)
    start = time.process_time()
    device.client.compile_and_load(text, [device], options)
    return time.process_time() - start


def _of_exported(jax, folder):
    """CPU seconds for a program that `export` has written."""
    from npu_shim.pjrt import manifest
    from npu_shim.pjrt.placement import Placement
    from npu_shim.pjrt.program import Program

    described = manifest.read(folder)
    placement = Placement((jax.devices("cpu")[0],))
    program = Program(jax, described, manifest.program(folder, described, "cpu"), placement)
    start = time.process_time()
    program.compile()
    return time.process_time() - start


def rows(jax, one, other, repeats):
    """Yields the lines of the table, and last the median of the ratios."""
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
    import jax

    columns = ["step", "%s, s" % given.out.name, "%s, s" % given.other.name, "ratio"]
    bench_tables.table(columns, rows(jax, given.out, given.other, given.repeats), given.write)


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
    command = commands.add_parser("record")
    command.add_argument("out", type=pathlib.Path)
    command.add_argument("networks", metavar="NETWORK", nargs="+")
    command.add_argument("--checkout", type=pathlib.Path, default=HERE.parent)
    command.add_argument("--jax", required=True, help="an interpreter with JAX, for the engine's workers")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--zoo", metavar="DIR")
    source.add_argument("--repositories", metavar="DIR")
    command.set_defaults(run=record)
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
