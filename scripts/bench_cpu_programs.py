"""What mixed precision costs in a program for a CPU: compile_step with and without it, side by side in one process.

    python scripts/bench_cpu_programs.py [MODEL...] [--steps N] [--note TEXT] [--write FILE]

The models are bench_cpu.py's. The forms alternate step by step; medians and the best steps are compared.
"""

import argparse
import statistics
import time

import bench_cpu
import bench_tables
import tensorflow.compat.v1 as tf

import npu_shim

FORMS = {"float32": {}, "mixed": {"precision_mode": "allow_mix_precision"}}
TITLE = ["# Programs for CPUs: mixed precision and float32", ""]


def compiled(model, form):
    """Returns (a compiled step of the model in a form, that has run once; its feeds)."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        fetches, feeds = bench_cpu.MODELS[model]()
    session = bench_cpu.session(graph, None)
    npu_shim.patch()
    given = bench_cpu.values(feeds)
    step = npu_shim.compile_step(session, fetches, list(feeds), device="CPU", **FORMS[form])
    step(given)
    return step, given


def seconds(model, steps):
    """Returns form -> seconds of each step."""
    steps_of = {form: compiled(model, form) for form in FORMS}
    taken = {form: [] for form in FORMS}
    for _ in range(steps):
        for form, (step, given) in steps_of.items():
            start = time.perf_counter()
            step(given)
            taken[form].append(time.perf_counter() - start)
    return taken


def row(model, steps):
    """The cells of a model's row: medians in ms, then the ratios of mixed to float32 of medians and of best steps."""
    taken = seconds(model, steps)
    cells = ["%.1f" % (statistics.median(values) * 1e3) for values in taken.values()]
    ratios = (of(taken["mixed"]) / of(taken["float32"]) for of in (statistics.median, min))
    return [model, *cells, *("%.2f" % ratio for ratio in ratios)]


def main():
    """Measures, prints, and writes the result where --write says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="some of %s" % ", ".join(bench_cpu.MODELS))
    parser.add_argument("--steps", type=int, default=40, help="steps of each form")
    parser.add_argument("--note", default="", help="what is to be said of the machine")
    parser.add_argument("--write", help="file for the result")
    args = parser.parse_args()
    tf.disable_control_flow_v2()  # as `npu-shim run` has it
    columns = ["model", *("%s ms" % form for form in FORMS)]
    columns += ["mixed : float32%s" % of for of in ("", ", best steps")]
    rows = (row(model, args.steps) for model in args.models or ["digits", "lenet"])
    bench_tables.table(columns, rows, args.write, [*TITLE, *([args.note, ""] if args.note else [])])


if __name__ == "__main__":
    main()
