#!/usr/bin/env python3
"""Tunes models with planted faults, trains what was found with other seeds, and prints a table in Markdown.

    python scripts/bench_tune.py [MODEL ...]

Every training is `npu-shim run scripts/planted_training.py MODEL FAULT STEPS SEED` in a process of its own, about
twelve for each row. The loss is the mean of the last quarter of the steps.
"""

import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parent / "planted_training.py"
MODELS = ("convolution", "transformer", "recurrent")
FAULTS = ("none", "mask", "square", "product", "scale", "index")
STEPS, SEEDS = 120, (1, 2, 3)
FLOAT32 = ["--set", "use_off_line=false"]
HEAD = ("model", "fault", "own mode", "trials", "kept in float32", "low products", "their operations",
        "float32, seeds 1 to 3", "tuned, seeds 1 to 3")  # fmt: skip


def command(folder, *words):
    """Runs npu-shim; returns what it printed to standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "npu_shim", *words], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "NPU_SHIM_LOG": "off"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def losses(folder, options, model, fault):
    """The loss of each seed."""
    texts = [command(folder, "run", *options, str(SCRIPT), model, fault, str(STEPS), str(seed)) for seed in SEEDS]
    return [float(re.search(r"last quarter: (\S+)", text).group(1)) for text in texts]


def spread(values):
    """Mean and standard deviation as text."""
    return "%.4f ± %.4f" % (statistics.mean(values), statistics.stdev(values))


def names(path, read):
    """What a file of tune's names, nothing where it was not needed."""
    return read(path.read_text()) if path.exists() else []


def row(model, fault):
    """One row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        told = command(name, "tune", str(SCRIPT), model, fault, str(STEPS))
        own = re.search("^own mode: (.*)$", told, re.MULTILINE).group(1)
        if "nothing is to be tuned" in told:
            of_mode = losses(name, [], model, fault)
            return [model, fault, "as float32", "2", "", "all", "100 %", spread(losses(name, FLOAT32, model, fault)),
                    spread(of_mode)]  # fmt: skip
        types, nodes = folder / "ops_info.json", folder / "ops_info.customize_dtypes.txt"
        kept = names(types, lambda text: ["type %s" % kind for kind in json.loads(text)["black-list"]["to-add"]])
        kept += names(nodes, lambda text: [line.partition("::")[0] for line in text.splitlines()])
        files = {"modify_mixlist": types, "customize_dtypes": nodes}
        options = [word for key, path in files.items() if path.exists() for word in ("--set", "%s=%s" % (key, path))]
        trials = re.search(r"after (\d+) trials", told).group(1)
        products = re.search(r"ops that are low +\d+ of \d+ +(\d+ of \d+)", told).group(1)
        share = re.search(r"operations +\S+ % +(\S+) %", told).group(1)
        return [model, fault, own, trials, ", ".join("`%s`" % name for name in kept), products, share + " %",
                spread(losses(name, FLOAT32, model, fault)), spread(losses(name, options, model, fault))]  # fmt: skip


def main(models):
    """Prints the table."""
    import tensorflow as tf

    print("date: %s" % datetime.date.today())
    print("machine: %s, %d CPUs, %s" % (platform.machine(), os.cpu_count(), platform.system()))
    print("versions: Python %s, TensorFlow %s\n" % (platform.python_version(), tf.__version__))
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD), flush=True)
    for model in models or MODELS:
        for fault in FAULTS:
            print("| " + " | ".join(row(model, fault)) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
