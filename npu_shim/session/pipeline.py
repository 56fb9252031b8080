"""The passes of a session's graph, behind the rewriter: one list, in the order in which they run.

    the rewriter's graph --pass--> module --pass--> module ... --> the session
                            check            check

What a pass makes is compared with what it promises (passes/promises.py) before the next one runs. What follows is
TensorFlow's own: its optimizers, and its clustering for XLA.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from npu_shim.distributed.collectives import call_fusion
from npu_shim.distributed.job import ranks
from npu_shim.options.passes import Watching
from npu_shim.rewriter.collector import without_collector
from npu_shim.rewriter.graphdef.promises import all_else_stays
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.passes import pipeline
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline, Promise
from npu_shim.session import devices
from npu_shim.session.clusters import conditionals, conversion, marking, unchecked
from npu_shim.session.observers import measures
from npu_shim.session.passes import arrivals, channels, kernel_names, onednn, promises, rounding


@dataclass
class Run:
    """What the passes know of the run whose graph it is, and what they tell.

    Attributes:
        given: GraphDef before the rewriter.
        feeds: names of nodes or tensors that are fed.
        asked: names of those that are fetched or run.
        number: of the session.
        is_local: whether this process runs it: the hook's own ops exist nowhere else.
        has_clusters: whether XLA may compile parts of it.
        moved: old name -> new name, of what `kernel names` has renamed.
        stays_out: which nodes stay out of clusters, None before one of their passes.
    """

    given: Any
    feeds: Sequence[str]
    asked: Sequence[str]
    number: int | None
    is_local: bool
    has_clusters: bool
    moved: Mapping[str, str] = field(default_factory=dict)
    stays_out: Callable[[Node], bool] | None = None

    @property
    def keep(self) -> list[str]:
        """Names of nodes or tensors that are fed, fetched or run."""
        return [*self.feeds, *self.asked]

    def outside(self, module: Module) -> Callable[[Node], bool]:
        """`stays_out`, decided of the graph as it is when that is first asked."""
        if self.stays_out is None:
            self.stays_out = marking.outside(module)
        return self.stays_out


def _distinct_names(module: Module, run: Run) -> None:
    graph_def = graphdef.write(module)
    if graph_def is not run.given:
        run.moved = kernel_names.distinct(run.given, graph_def)
    if run.moved:
        kernel_names.rename(module, run.moved, run.asked)


def _mark_clusters(module: Module, run: Run) -> None:
    marking.mark(module, run.outside(module))
    unchecked.tell_of_clusters(graphdef.write(module), run.number)


def _is_local(run: Run) -> bool:
    return run.is_local


def _has_clusters(run: Run) -> bool:
    return run.has_clusters


SESSION = Pipeline(
    "session",
    "fits a rewritten graph to the kernels, the ranks and the clusters of a session",
    (
        Pass(
            "kernel names",
            _distinct_names,
            "first: it compares with the graph before the rewriter, node by node",
            promise=Promise("a name that was not used yet, and the old one where it is fetched", promises.renamed),
        ),
        Pass(
            "call fusion",
            lambda module, run: call_fusion.fuse(module),
            "on every rank, and on servers: ranks must fuse the same collectives",
            promise=Promise(
                "the sum of tensors end to end is their sums end to end", all_else_stays(promises.is_part_of_fused)
            ),
            needs_ops=frozenset([call_fusion.REDUCE]),
        ),
        Pass(
            "measures",
            lambda module, run: measures.fuse(module, run.keep, devices.accelerator()),
            "before clusters, which would take the ordinary ops that it replaces",
            applies=_is_local,
            promise=Promise("one op computes what the ordinary ones do", all_else_stays(promises.is_measure)),
            needs_ops=frozenset([measures.FIRST]),
        ),
        Pass(
            "channels",
            lambda module, run: channels.to_channels_last(module, devices.accelerator()),
            "before oneDNN's names: channels last, most ops have kernels of TensorFlow's own",
            applies=_is_local,
            promise=Promise(
                "channels last between Transposes is channels first", all_else_stays(promises.is_channels_last)
            ),
            needs_ops=frozenset(channels.CONVERTED),
        ),
        Pass(
            "oneDNN",
            lambda module, run: onednn.name_kernels(module, devices.accelerator()),
            "when the layout is decided",
            applies=_is_local,
            promise=Promise("oneDNN's kernel computes the same", all_else_stays(promises.is_named_kernel)),
            needs_ops=frozenset(channels.CONVOLUTIONS),
        ),
        Pass(
            "conditionals",
            lambda module, run: conditionals.to_functional(module, run.keep, run.outside(module), marking.MINIMUM_OPS),
            "before clusters, which may contain an If, but no Switch and no Merge; one tf.cond at a time",
            applies=_has_clusters,
            promise=Promise("each side of an If is a side of the tf.cond", conversion.violations),
            repeats=True,
            needs_ops=frozenset(["Merge"]),
        ),
        Pass(
            "clusters",
            _mark_clusters,
            "when every op is what will run",
            applies=_has_clusters,
            promise=Promise(
                "where an op runs changes no value", all_else_stays(attributes=(marking.MARK, marking.OWN))
            ),
        ),
        Pass(
            "rounding",
            lambda module, run: rounding.fuse_casts(module, run.keep, devices.accelerator()),
            "after clusters, which know a Cast, and not the op that takes the place of two",
            applies=_is_local,
            promise=Promise("one op rounds as two Casts do", all_else_stays(promises.is_rounding)),
            needs_ops=frozenset(["Cast"]),
        ),
        Pass(
            "arrivals",
            lambda module, run: arrivals.mark(module),
            "last: what stands before a collective must be what the collective waits for",
            applies=lambda run: run.is_local and ranks.world_size() > 1,
            promise=Promise("the op gives what it gets", all_else_stays(promises.is_arrival)),
        ),
    ),
)


@without_collector()
def applied(graph_def: Any, run: Run, watching: Watching) -> Any:
    """Returns what the passes make of a rewritten graph; the same object where none changes anything.

    Args:
        graph_def: tf.compat.v1.GraphDef of the rewriter; it is not changed.
        run: the Run.
        watching: who looks on.

    Raises:
        VerifyError: a pass has changed something else than it promises, or a graph's structure is broken.
    """
    module = graphdef.opened(graph_def)
    pipeline.run(SESSION, module, run, watching.of(SESSION.name))
    result = graphdef.write(module)
    module.release()
    return result
