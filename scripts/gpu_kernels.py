#!/usr/bin/env python3
"""Writes configs/gpu_kernels/VERSION.json: which op a TensorFlow runs on GPUs in which dtypes, from its own registry.

    python scripts/gpu_kernels.py WHEEL

It needs a TensorFlow that is built for GPUs, but no GPU. WHEEL is the name of the package that it came in, for the
file's note. `npu-shim plan --device GPU` reads the table where TensorFlow has no GPU kernels of its own.
"""

import json
import os
import sys

import tensorflow.compat.v1 as tf

from npu_shim import configs
from npu_shim.options.ops import kernel_tables
from npu_shim.rewriter.graph.kernel_table import ANY_DEVICE, to_rows
from npu_shim.rewriter.graphdef import registry

NOTE = "Attributes and their dtypes of the kernels registered for GPUs; written by scripts/gpu_kernels.py"


def rows():
    """Returns op type -> rows of its kernels that serve a GPU."""
    rows_of = {}
    for op, kernels in sorted(registry.registered_kernels().items()):
        serving = [kernel for kernel in kernels if kernel.device in ("GPU", ANY_DEVICE)]
        if serving:
            rows_of[op] = to_rows(serving)
    return rows_of


def text(wheel):
    """Returns the file's text, one op a line."""
    head = {"note": NOTE, "source": "%s %s" % (wheel, tf.__version__)}
    lines = ["%s: %s" % (json.dumps(op), json.dumps(kernels)) for op, kernels in rows().items()]
    return '%s,\n "kernels": {\n%s\n}}\n' % (json.dumps(head, indent=1)[:-2], ",\n".join(lines))


def main(wheel):
    """Writes the table of this TensorFlow."""
    if not kernel_tables.has_gpu_kernels():
        sys.exit("TensorFlow %s has no GPU kernels: use its full wheel" % tf.__version__)
    path = configs.folder(kernel_tables.FOLDER, "%s.json" % ".".join(tf.__version__.split(".")[:2]))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text(wheel))
    print("%s: %d bytes" % (path, os.path.getsize(path)))


if __name__ == "__main__":
    main(*sys.argv[1:])
