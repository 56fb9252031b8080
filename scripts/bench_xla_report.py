"""What both halves of scripts/bench_xla share: feeds, taking turns, and the tables. Standard library and numpy."""

import datetime
import json
import os
import platform
import statistics
import sys
import time

import numpy as np


def wanted(args, model, sizes):
    """Returns whether --models and --batch choose a model of these sizes."""
    return model in args.models.split(",") and (not args.batch or batch(sizes) in args.batch.split(","))


def batch(sizes):
    """Returns the size of a batch as --batch has it: "32", or "16x512" where the length of a sequence is not usual."""
    return "x".join(str(sizes[key]) for key in ("batch", "sequence") if key in sizes)


def feeds(described, seed=1, count=None):
    """Returns values for feeds, dict of name to (dtype, shape, bound); with `count`, so many in front of each."""
    random = np.random.RandomState(seed)
    front = [] if count is None else [count]
    return {
        name: random.randint(0, bound, front + shape).astype(dtype) if bound
        else random.standard_normal(front + shape).astype(dtype)
        for name, (dtype, shape, bound) in sorted(described.items())
    }  # fmt: skip


def values(tensors, rules, seed=0):
    """Returns variable name -> array for state: by the rules of `bench_models.build`; what has none is zero.

    Args:
        tensors: name -> (shape, numpy dtype).
        rules: name -> ["normal", mean, deviation] or ["values", list].
        seed: of the normal values; the same name and seed give the same values.
    """
    drawn = {}
    for name, (shape, dtype) in tensors.items():
        kind, *what = rules.get(name, ("normal", 0.0, 0.0))
        if kind == "values":
            drawn[name] = np.asarray(what[0], dtype).reshape(shape)
        elif what[1]:
            random = np.random.default_rng([seed, *name.encode()])
            drawn[name] = (random.standard_normal(shape, np.float32) * what[1] + what[0]).astype(dtype)
        else:
            drawn[name] = np.full(shape, what[0], dtype)
    return drawn


def alternate(calls, rounds, steps):
    """Returns name -> median seconds a step; the calls take turns, `steps` each, in changing order.

    Args:
        calls: name -> callable that makes one step and waits for it.
        rounds: blocks of each, after a first one that is not counted.
        steps: calls a block.
    """
    taken = {name: [] for name in calls}
    names = list(calls)
    for at in range(rounds + 1):
        first = at % max(1, len(names))
        for name in names[first:] + names[:first]:
            begin = time.perf_counter()
            for _ in range(steps):
                calls[name]()
            if at:
                taken[name].append((time.perf_counter() - begin) / steps)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def write(stem, header, rows, table, timed=True):
    """Prints the table; with a stem writes it to STEM.md and the figures to STEM.json."""
    header = dict(
        header, date=str(datetime.date.today()), python=platform.python_version(), cores=os.cpu_count(),
        command="scripts/bench_xla " + " ".join(_plain(word) for word in sys.argv[1:]),
    )  # fmt: skip
    if timed:
        header["load"] = round(os.getloadavg()[1], 1)
    text = "\n".join([*_head(header), *table(rows)]) + "\n"
    print(text)
    if stem:
        with open(stem + ".md", "w", encoding="utf-8") as f:
            f.write(text)
        with open(stem + ".json", "w", encoding="utf-8") as f:
            json.dump(dict(header, rows=rows), f, indent=1, sort_keys=True)
            f.write("\n")


def _plain(word):
    """A folder of this machine says nothing elsewhere."""
    return os.path.basename(word.rstrip("/")) if os.path.isabs(word) else word


def _head(header):
    facts = ", ".join("%s %s" % (key, header[key]) for key in sorted(header) if key not in ("command", "device"))
    busy = header.get("load", 0) > header["cores"] / 2
    lines = ["# XLA: training steps on %s" % header["device"], "", facts, "", "    " + header["command"], ""]
    return lines + (["The machine was busy with other work: trust ratios more than times.", ""] if busy else [])


def run_table(rows):
    """The tables of `run`: ratios first, then what each form takes."""
    lines = ["## Ratios of step time (above 1: the second is faster)", ""]
    pairs = [pair for pair in PAIRS if any(set(pair) <= set(row["forms"]) for row in rows)]
    lines += ["| model | %s |" % " | ".join("%s : %s" % pair for pair in pairs), "|---" * (len(pairs) + 1) + "|"]
    for row in rows:
        cells = [_ratio(row["forms"], *pair) for pair in pairs]
        lines.append("| %s | %s |" % (title(row), " | ".join(cells)))
    lines += ["", "Memory of float16 and bfloat16 as a share of float32's:", ""]
    for row in rows:
        bytes_of = {name: form["memory"] for name, form in row["forms"].items()}
        low = [name for name in LOW if {name, "float32"} <= set(bytes_of)]
        shares = ["%s %.2f" % (name, bytes_of[name] / bytes_of["float32"]) for name in low]
        lines.append("- %s: %s" % (title(row), ", ".join(shares)))
    lines += ["", "## Forms", "", COLUMNS, "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        for name, form in row["forms"].items():
            lines.append("| %s | %s | %s |" % (title(row), name, " | ".join(_cells(row, form))))
    return [*lines, "", *NOTES]


LOW = ("float16", "bfloat16", "jax-float16", "jax-bfloat16")
PAIRS = (
    ("float32", "float16"), ("float32", "bfloat16"), ("tf32", "float16"), ("tf32", "bfloat16"),
    ("jax-float16", "float16"), ("jax-bfloat16", "bfloat16"), ("jax-bfloat16-wide", "bfloat16"),
    ("jax-bfloat16-cudnn", "bfloat16"), ("bfloat16-unfused", "bfloat16"),
)  # fmt: skip
COLUMNS = "| model | form | step, ms | in a loop, ms | samples/s | memory, MB | TFLOP/s | of limit |"
NOTES = (
    "float32: products in full float32. tf32: products in what the device takes for float32. float16, bfloat16:",
    "rewritten by allow_mix_precision and allow_mix_precision_bf16, float16 with dynamic loss scaling. jax-*: the same",
    "model written by hand in JAX; -wide: with the plan's own dtypes; -cudnn: so, and attention by cuDNN. -unfused:",
    "attention=off. In a loop: milliseconds a step in one XLA loop on the device (on a CPU, exported",
    "steps with convolutions run one after another instead, which is faster there). Memory: arguments,",
    "results and temporaries of the compiled step, by XLA. TFLOP/s: operations of the products as written over the",
    "step's time; the limit is the chip's for the form's dtype.",
)


def title(row):
    """Returns what a row is of: "bert batch 32", "bert batch 16x512"."""
    return "%s batch %s" % (row["model"], batch(row["sizes"]))


def _ratio(forms, slow, fast):
    if slow not in forms or fast not in forms:
        return "-"
    return "%.2f" % (forms[slow]["seconds"] / forms[fast]["seconds"])


def _cells(row, form):
    speed = row["products"] / form["seconds"]
    return (
        "%.2f" % (form["seconds"] * 1e3),
        "%.2f" % (form["loop_seconds"] * 1e3) if form.get("loop_seconds") else "-",
        "%.1f" % (row["sizes"]["batch"] / form["seconds"]),
        "%.0f" % (form["memory"] / 1e6),
        "%.3f" % (speed / 1e12),
        "%.1f %%" % (100 * speed / form["limit"]) if form.get("limit") else "-",
    )
