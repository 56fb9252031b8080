#!/usr/bin/env python3
"""The arithmetic of benchmarks/scale_out.md: what gradients cost on 8 to 1,000 GPUs, from figures in the tree.

    scripts/scale_out.py             writes the page's tables anew
    scripts/scale_out.py --measure   builds the benchmark's models and writes what they train; needs TensorFlow

A ring of N ranks reduces B bytes in 2 (N - 1) steps of B / N bytes each: 2 (N - 1) (latency + B / N / bandwidth).
What a step computes is benchmarks/gpu_compiled.json's lower bound on the card, links are configs/links.json's.
"""

import argparse
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:1] = [str(HERE), str(HERE.parent)]

from npu_shim.distributed.job.settings import default_bucket_bytes as bucket_bytes  # noqa: E402

PAGE = HERE.parent / "benchmarks" / "scale_out.md"
TRAINED = HERE / "data" / "trained_variables.json"
COMPILED = HERE.parent / "benchmarks" / "gpu_compiled.json"
LINKS = HERE.parent / "configs" / "links.json"
BEGIN, END = "<!-- scripts/scale_out.py: %s -->", "<!-- end -->"

CARD, HOST, RANKS = "h100", 8, (8, 64, 256, 1000)  # HOST: GPUs of one
FORMS = (("float32", 4), ("float16", 2))  # of a step, and the bytes of an element that its gradients may travel in
ADAM_SLOTS = 2
SHOWN = ("NVLink 4", "PCIe 5.0 x16", "PCIe 4.0 x16", "400 Gbit/s", "100 Gbit/s")  # of the links


def ring_seconds(size, bytes_, link, collectives=1):
    """Seconds for a ring of `size` ranks to reduce `bytes_` bytes, in so many collectives one after the other."""
    steps = 2 * (size - 1)
    return steps * (collectives * link["latency"] + bytes_ / size / link["bandwidth"])


def level_bytes(size, link):
    """Bytes of a collective whose latencies take as long as its bytes: smaller ones pay more for latency."""
    return size * link["latency"] * link["bandwidth"]


def read():
    """Returns (trained variables by model, seconds of a step by (model, form), links)."""
    trained = json.loads(TRAINED.read_text())["models"]
    rows = [row for row in json.loads(COMPILED.read_text())["rows"] if FORMS[0][0] in row["cards"][CARD]]
    seconds = {(row["model"], form): row["cards"][CARD][form]["seconds"] for row in rows for form, _ in FORMS}
    links = json.loads(LINKS.read_text())["links"]
    return trained, seconds, {name: links[name] for name in SHOWN}


def tables(trained, seconds, links):
    """Returns the page's tables by name: text."""
    return {
        "bytes": _bytes(trained),
        "times": _times(trained, seconds, links),
        "shares": _shares(trained, seconds, links),
        "buckets": _buckets(links),
        "sharding": _sharding(trained),
    }


def _bytes(trained):
    head = ["model", "trained variables", "gradients in float32, MB", "in 16 bits, MB", "buckets of 32 MB"]
    rows = []
    for model, of in trained.items():
        wide = 4 * of["elements"]
        rows.append([model, of["variables"], _mb(wide), _mb(wide / 2), 1 + wide // bucket_bytes(RANKS[-1])])
    return _table(head, rows)


def _times(trained, seconds, links):
    head = ["model, gradients", "GPUs", *links]
    rows = []
    for model, of in trained.items():
        for form, width in FORMS:
            for size in RANKS:
                moved = width * of["elements"]
                cells = [_ring(size, moved, link) for link in links.values()]
                rows.append(["%s, %s" % (model, form), size, *map(_ms, cells)])
    return _table(head, rows)


def _shares(trained, seconds, links):
    """How much of a step the gradients are, where nothing overlaps; the step is the card's lower bound."""
    asked = [(HOST if link["inside"] else 8 * HOST, name) for name, link in links.items()]
    head = ["model, step", "gradients", "step, ms", *("%d GPUs, %s" % layout for layout in asked)]
    rows = []
    for model, of in trained.items():
        for form, width, travels in (("float32", 4, "float32"), ("float16", 4, "float32"), ("float16", 2, "float16")):
            step, moved = seconds[model, form], width * of["elements"]
            times = [_ring(size, moved, links[name]) for size, name in asked]
            shares = ["%.0f %%" % (100 * seconds / (seconds + step)) for seconds in times]
            rows.append(["%s, %s" % (model, form), travels, _ms(step), *shares])
    return _table(head, rows)


def _ring(size, moved, link):
    """Seconds for all buckets of `moved` bytes, None where the link does not reach so many GPUs."""
    return None if link["inside"] and size > HOST else ring_seconds(size, moved, link, 1 + moved // bucket_bytes(size))


def _buckets(links):
    head = ["GPUs", *links]
    rows = [
        [size, *(_mb(None if link["inside"] and size > HOST else level_bytes(size, link)) for link in links.values())]
        for size in RANKS
    ]
    return _table(head, rows)


def _sharding(trained):
    head = ["model", "slots of Adam, MB", *("a rank's of %d, MB" % size for size in RANKS)]
    rows = []
    for model, of in trained.items():
        slots, largest = ADAM_SLOTS * 4 * of["elements"], ADAM_SLOTS * 4 * of["largest"]
        shares = [max(slots / size, largest) if size <= of["variables"] else None for size in RANKS]
        rows.append([model, _mb(slots), *map(_mb, shares)])
    return _table(head, rows)


def _table(head, rows):
    lines = [head, ["---" for _ in head], *rows]
    return "\n".join("| %s |" % " | ".join(map(str, line)) for line in lines)


def _mb(bytes_):
    if bytes_ is None:
        return "-"
    value = bytes_ / 2**20
    return "%.0f" % value if value >= 100 else "%.3g" % value


def _ms(seconds):
    if seconds is None:
        return "-"
    return "%.0f" % (1e3 * seconds) if seconds >= 0.1 else "%.3g" % (1e3 * seconds)


def written(page, tables):
    """Returns the page's text with each table between its marks replaced.

    Raises:
        ValueError: a table whose marks are not on the page.
    """
    for name, table in tables.items():
        before, mark, rest = page.partition(BEGIN % name)
        _, end, after = rest.partition(END)
        if not mark or not end:
            raise ValueError("%s has no place for the table '%s'" % (PAGE, name))
        page = "%s%s\n\n%s\n\n%s%s" % (before, mark, table, end, after)
    return page


def measure():
    """Returns what the models train, built at the sizes of benchmarks/gpu_compiled.json."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import bench_models

    models = {}
    for row in json.loads(COMPILED.read_text())["rows"]:
        built = bench_models.build(row["model"], row["sizes"])
        with built.graph.as_default():
            shapes = [variable.shape.as_list() for variable in bench_models.tf.trainable_variables()]
        elements = [int(bench_models.np.prod(shape)) for shape in shapes]
        models[row["model"]] = {"variables": len(shapes), "elements": sum(elements), "largest": max(elements)}
    return models


def main():
    """Writes the page, or what it rests on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="write what the models train: %s" % TRAINED.name)
    if parser.parse_args().measure:
        text = {"source": "scripts/scale_out.py --measure: models of scripts/bench_models.py", "models": measure()}
        TRAINED.write_text(json.dumps(text, indent=1) + "\n")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), tables(*read())), encoding="utf-8")


if __name__ == "__main__":
    main()
