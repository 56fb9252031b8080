"""Runs exported steps under JAX, without TensorFlow: python differential_jax.py FOLDER..., or with "-" for folders
that come line by line; a line answers each.

Each folder has the step and batches.npz, and gets results.npz or error.txt.
"""

import os
import sys
import traceback

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir))
from npu_shim import pjrt


def run(folder):
    program = pjrt.load(os.path.join(folder, "step"), device="cpu")
    batches = dict(np.load(os.path.join(folder, "batches.npz")))
    buffers = {key.partition("|")[2]: value for key, value in batches.items() if key.startswith("0|")}
    ran = []
    for number in range(len(batches) // len(buffers)):
        for name, buffer in buffers.items():
            buffer[...] = batches["%d|%s" % (number, name)]
        ran.append(program.run(buffers))  # the buffers are filled again while it runs
    values = {"%d|%s" % (k, name): np.asarray(value) for k, step in enumerate(ran) for name, value in step.items()}
    values.update(("state|" + name, value) for name, value in program.state().items())
    np.savez(os.path.join(folder, "results.npz"), **values)


def tried(folder):
    try:
        run(folder)
    except Exception:
        with open(os.path.join(folder, "error.txt"), "w", encoding="utf-8") as file:
            file.write(traceback.format_exc())


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        for line in sys.stdin:
            tried(line.rstrip("\n"))
            print("done", flush=True)
    else:
        for given in sys.argv[1:]:
            tried(given)
