"""Counts the nodes of graphs whose ops have no rule in `npu_shim.step`; needs TensorFlow and JAX in one Python.

    python scripts/step_coverage.py GRAPH...     GraphDefs: .pb, also .gz and .xz, or .meta
    python scripts/step_coverage.py --names      writes npu_shim/step/op_names.py
    python scripts/step_coverage.py --compiled   the ops that TensorFlow's own XLA bridge compiles and that have none

It prints one op a line, the most frequent first: how many nodes in how many graphs.
"""

import argparse
import collections
import gzip
import lzma
import os
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = os.path.join(ROOT, "npu_shim", "step", "op_names.py")
sys.path.insert(0, ROOT)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
OPENERS = {".gz": gzip.open, ".xz": lzma.open}


def nodes_of(path):
    """The NodeDefs of a GraphDef or MetaGraphDef file, those of functions too."""
    import tensorflow.compat.v1 as tf

    with OPENERS.get(os.path.splitext(path)[1], open)(path, "rb") as f:
        content = f.read()
    kind = tf.MetaGraphDef if ".meta" in os.path.basename(path) else tf.GraphDef
    message = kind.FromString(content)
    graph_def = message.graph_def if kind is tf.MetaGraphDef else message
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def without_rule(names):
    """Those of some ops that have no rule."""
    from npu_shim.step.ops import TABLE

    return [name for name in names if name not in TABLE]


def compiled_ops():
    """The ops for which TensorFlow's XLA bridge has a kernel."""
    from npu_shim.rewriter import tf_internals

    return sorted(tf_internals.xla_kernels())


def write_names():
    """Writes the names of all ops that have a rule, between the quotes of their file."""
    from npu_shim.step.ops import TABLE

    with open(NAMES) as f:
        before, _, rest = f.read().partition('TEXT = """\n')
    after = rest.partition('"""\n')[2]
    lines = textwrap.wrap(" ".join(sorted(TABLE)), 112, initial_indent="    ", subsequent_indent="    ")
    with open(NAMES, "w") as f:
        f.write('%sTEXT = """\n%s\n"""\n%s' % (before, "\n".join(lines), after))


def counted(paths):
    """Op -> (nodes, graphs)."""
    nodes, graphs = collections.Counter(), collections.Counter()
    for path in paths:
        ops = collections.Counter(node.op for node in nodes_of(path))
        nodes.update(ops)
        graphs.update(ops.keys())
    return {op: (count, graphs[op]) for op, count in nodes.items()}


def main(arguments=None):
    """Prints what has no rule, and returns 0 if there is nothing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="*")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--names", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.names:
        write_names()
        return False
    if asked.compiled:
        everything = compiled_ops()
        open_ones = without_rule(everything)
        print("\n".join(open_ones))
        print("%d of %d ops have no rule" % (len(open_ones), len(everything)))
        return bool(open_ones)
    counts = counted(asked.graphs)
    open_ones = sorted(without_rule(counts), key=lambda op: (-counts[op][0], op))
    for op in open_ones:
        print("%-40s %6d nodes in %d graphs" % (op, *counts[op]))
    print("%d of %d ops have no rule" % (len(open_ones), len(counts)))
    return bool(open_ones)


if __name__ == "__main__":
    sys.exit(main())
