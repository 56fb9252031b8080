"""The passes of a session's graph, behind the rewriter: one list, in the order in which they run.

    GraphDef of the rewriter --pass--> GraphDef --pass--> ... --> the session
                               check              check

Each result is compared with what its pass promises (passes/promises.py) before the next one runs. What follows is
TensorFlow's own: its optimizers, and its clustering for XLA.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from npu_shim.distributed.collectives import call_fusion
from npu_shim.distributed.job import ranks
from npu_shim.session import clusters
from npu_shim.session.clusters import unchecked
from npu_shim.session.observers import measures
from npu_shim.session.passes import arrivals, channels, kernel_names, onednn, promises, rounding

NAME, PURPOSE = "session", "fits a rewritten graph to the kernels, the ranks and the clusters of a session"


@dataclass(frozen=True)
class Run:
    """What the passes know of the run whose graph it is.

    Attributes:
        given: GraphDef before the rewriter.
        feeds: names of nodes or tensors that are fed.
        asked: names of those that are fetched or run.
        number: of the session.
        is_local: whether this process runs it: the hook's own ops exist nowhere else.
        has_clusters: whether XLA may compile parts of it.
    """

    given: Any
    feeds: Sequence[str]
    asked: Sequence[str]
    number: int | None
    is_local: bool
    has_clusters: bool

    @property
    def keep(self) -> list[str]:
        """Names of nodes or tensors that are fed, fetched or run."""
        return [*self.feeds, *self.asked]


@dataclass(frozen=True)
class Pass:
    """A rewrite of a session's graph.

    Attributes:
        name: of its promise.
        run: takes a GraphDef, which it does not change, and the Run; returns a GraphDef, the same one for no change.
        reason: why it stands where it does.
        applies: whether it has anything to do in a Run.
        checks: whether its result is checked here; False for what checks its parts by itself.
    """

    name: str
    run: Callable[[Any, Run], Any]
    reason: str
    applies: Callable[[Run], bool] = lambda run: True
    checks: bool = True


def _distinct_names(graph_def: Any, run: Run) -> Any:
    """Checked as if every node had its old name again."""
    moved = {} if graph_def is run.given else kernel_names.distinct(run.given, graph_def)
    if not moved:
        return graph_def
    renamed = kernel_names.renamed(graph_def, moved, run.asked)
    promises.kept("kernel names", graph_def, kernel_names.undone(renamed, moved), run.asked)
    return renamed


def _clusters(graph_def: Any, run: Run) -> Any:
    marked = clusters.mark(graph_def, run.keep, functools.partial(promises.kept, keep=run.keep))
    unchecked.tell_of_clusters(marked, run.number)
    return marked


def _is_local(run: Run) -> bool:
    return run.is_local


PASSES = (
    Pass(
        "kernel names",
        _distinct_names,
        "first: it compares with the graph before the rewriter, node by node",
        checks=False,
    ),
    Pass(
        "call fusion",
        lambda graph_def, run: call_fusion.fused(graph_def),
        "on every rank, and on servers: ranks must fuse the same collectives",
    ),
    Pass(
        "measures",
        lambda graph_def, run: measures.fuse(graph_def, run.keep, clusters.accelerator()),
        "before clusters, which would take the ordinary ops that it replaces",
        _is_local,
    ),
    Pass(
        "channels",
        lambda graph_def, run: channels.turn(graph_def, clusters.accelerator()),
        "before oneDNN's names: channels last, most ops have kernels of TensorFlow's own",
        _is_local,
    ),
    Pass(
        "oneDNN",
        lambda graph_def, run: onednn.name_kernels(graph_def, clusters.accelerator()),
        "when the layout is decided",
        _is_local,
    ),
    Pass(
        "clusters",
        _clusters,
        "when every op is what will run; a tf.cond that is in a cluster becomes an If first",
        lambda run: run.has_clusters,
        checks=False,
    ),
    Pass(
        "rounding",
        lambda graph_def, run: rounding.fuse_casts(graph_def, run.keep, clusters.accelerator()),
        "after clusters, which know a Cast, and not the op that takes the place of two",
        _is_local,
    ),
    Pass(
        "arrivals",
        lambda graph_def, run: arrivals.marked(graph_def),
        "last: what stands before a collective must be what the collective waits for",
        lambda run: run.is_local and ranks.world_size() > 1,
    ),
)


def applied(graph_def: Any, run: Run) -> Any:
    """Returns what the passes make of a rewritten graph; the same object where none changes anything.

    Args:
        graph_def: tf.compat.v1.GraphDef of the rewriter; it is not changed.
        run: the Run.

    Raises:
        VerifyError: a pass has changed something else than it promises.
    """
    for step in PASSES:
        if step.applies(run):
            result = step.run(graph_def, run)
            graph_def = promises.kept(step.name, graph_def, result, run.keep) if step.checks else result
    return graph_def
