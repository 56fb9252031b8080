"""The passes of a session's graph, behind the rewriter: one list, in the order in which they run.

    the rewriter's graph --pass--> module --pass--> module ... --> the session
                            check            check

What a pass makes is compared with what it promises (passes/promises.py) before the next one runs. What follows is
TensorFlow's own: its optimizers, and its clustering for XLA.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from npu_shim.distributed.collectives import call_fusion
from npu_shim.distributed.job import ranks
from npu_shim.rewriter.collector import without_collector
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module
from npu_shim.session import clusters, devices
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
        run: changes a Module in place; takes it and the Run.
        reason: why it stands where it does.
        applies: whether it has anything to do in a Run.
        checks: whether its result is checked here; False for what checks its parts by itself.
    """

    name: str
    run: Callable[[Module, Run], None]
    reason: str
    applies: Callable[[Run], bool] = lambda run: True
    checks: bool = True


def _distinct_names(module: Module, run: Run) -> None:
    """Checked as if every node had its old name again."""
    graph_def = graphdef.write(module)
    moved = {} if graph_def is run.given else kernel_names.distinct(run.given, graph_def)
    if moved:
        kernel_names.rename(module, moved, run.asked)
        promises.kept("kernel names", graph_def, kernel_names.undone(graphdef.write(module), moved), run.asked)


def _clusters(module: Module, run: Run) -> None:
    clusters.mark(module, run.keep, functools.partial(promises.kept, keep=run.keep))
    unchecked.tell_of_clusters(graphdef.write(module), run.number)


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
        lambda module, run: call_fusion.fuse(module),
        "on every rank, and on servers: ranks must fuse the same collectives",
    ),
    Pass(
        "measures",
        lambda module, run: measures.fuse(module, run.keep, devices.accelerator()),
        "before clusters, which would take the ordinary ops that it replaces",
        _is_local,
    ),
    Pass(
        "channels",
        lambda module, run: channels.turn(module, devices.accelerator()),
        "before oneDNN's names: channels last, most ops have kernels of TensorFlow's own",
        _is_local,
    ),
    Pass(
        "oneDNN",
        lambda module, run: onednn.name_kernels(module, devices.accelerator()),
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
        lambda module, run: rounding.fuse_casts(module, run.keep, devices.accelerator()),
        "after clusters, which know a Cast, and not the op that takes the place of two",
        _is_local,
    ),
    Pass(
        "arrivals",
        lambda module, run: arrivals.mark(module),
        "last: what stands before a collective must be what the collective waits for",
        lambda run: run.is_local and ranks.world_size() > 1,
    ),
)


@without_collector()
def applied(graph_def: Any, run: Run) -> Any:
    """Returns what the passes make of a rewritten graph; the same object where none changes anything.

    Args:
        graph_def: tf.compat.v1.GraphDef of the rewriter; it is not changed.
        run: the Run.

    Raises:
        VerifyError: a pass has changed something else than it promises.
    """
    module = Module()
    graphdef.replace(module, graph_def)
    for step in PASSES:
        if step.applies(run):
            before, module.author = graphdef.write(module), step.name
            step.run(module, run)
            if step.checks:
                promises.kept(step.name, before, graphdef.write(module), run.keep)
    result = graphdef.write(module)
    module.release()
    return result
