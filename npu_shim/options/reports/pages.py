"""NPU_SHIM_REPORT=FOLDER: keeps a page of each graph that is planned, for `npu-shim run --report`.

Each page is a file of its own, so that the processes that a script starts can write into the same folder.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
from typing import Any, Iterable, Sequence

from npu_shim.options.precision import Precision
from npu_shim.options.reports.kept_pages import SUFFIX, SWITCH
from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.graph.graph_view import Node
from npu_shim.rewriter.graphdef.inlining import inline
from npu_shim.rewriter.page import model, sizes
from npu_shim.rewriter.planner.decisions import Plan
from npu_shim.rewriter.rewrite import Rewritten

MOST_NAMES = 2  # of what is fetched, in a page's title
_numbers = itertools.count()


def keep(done: Rewritten, graph_def: Any, feeds: Iterable[str], preserved: Iterable[str], chosen: Precision) -> None:
    """Writes the page of a planned graph into the folder of NPU_SHIM_REPORT, if that is set and the graph computes.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    folder = os.environ.get(SWITCH)
    if not folder or not computes(done.plan, chosen):
        return
    names = list(dict.fromkeys(preserved))
    shown = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
    kind = "training" if trains(done.plan.view.nodes) else "evaluation"
    contents = page(done, graph_def, feeds, names, chosen, "%s: %s" % (kind, shown))
    path = os.path.join(folder, "%d-%06d%s" % (os.getpid(), next(_numbers), SUFFIX))
    with atomic_write.file(path) as f:
        f.write(gzip.compress(json.dumps(contents).encode("utf-8")))


def trains(nodes: Sequence[Node]) -> bool:
    """Whether an optimizer's op updates variables, or assignments do in a graph with gradients."""
    ops = {node.op for node in nodes}
    assigns = any(op.startswith("Assign") for op in ops)
    by_hand = assigns and any(part.startswith("gradients") for node in nodes for part in node.name.split("/"))
    return by_hand or any("Apply" in op for op in ops)


def computes(plan: Plan, chosen: Precision) -> bool:
    """Whether a graph has products or their like: not one that only initializes or saves variables."""
    entries = chosen.table.entries
    return any(node.op in entries and entries[node.op].listed == "white" for node in plan.view.nodes)


def page(
    done: Rewritten, graph_def: Any, feeds: Iterable[str], preserved: Iterable[str], chosen: Precision, title: str
) -> dict[str, Any]:
    """Returns the page of a planned graph, see `rewriter.page.model.of`.

    Args:
        done: what rewriting `graph_def` gave.
        graph_def: tf.compat.v1.GraphDef as written.
        feeds: names of tensors that are fed.
        preserved: names of nodes or tensors that keep their names and dtypes.
        chosen: the options that it was rewritten by.
        title: what the graph is, for people.
    """
    flat = inline(graph_def, feeds, preserved).graph_def
    contents: dict[str, Any] = model.of(done.plan, sizes.of(flat, chosen.table.entries), title, done.seconds)
    return contents
