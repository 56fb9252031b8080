"""The passes that make each program of a run a graph of its own: one list, in the order in which they run.

    the run's graph, rewritten --pass--> module --pass--> ... --> a program's graph --> prune, resources, shapes

Where each node runs is decided before, of what never changes of the nodes (partition/cut.py); these passes decide
nothing. What follows are the passes of a compiled step (npu_shim/xla/pipeline.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

from npu_shim.engine.partition.cut import Cut, Program
from npu_shim.options.passes import Watching
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.passes import pipeline
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline
from npu_shim.xla.passes import host_reports, pruning


@dataclass
class Division:
    """What the passes know of a program.

    Attributes:
        cut: the Cut of its run.
        program: one of its Programs.
        results: names of the nodes that it computes or runs.
        fed: `sources.Argument` of each tensor that others give to it.
        placeholders: the names of their Placeholders in the program; known behind the last pass.
    """

    cut: Cut
    program: Program
    results: Sequence[str]
    fed: Sequence[Any]
    placeholders: list[str] = field(default_factory=list)


def _drop_waits(module: Module, division: Division) -> None:
    elsewhere = division.cut.places.keys() - division.program.nodes
    gone = elsewhere.difference(division.cut.programs[-1].effects)
    for node in (node for node in module.graph if node.name not in gone):
        kept = [control for control in node.controls if control.name not in elsewhere]
        if len(kept) < len(node.controls):
            node.set_controls(kept)


def _forward_reports(module: Module, division: Division) -> None:
    for name in division.cut.programs[-1].effects:
        if name in module.graph and module.graph[name].op in host_reports.FORWARDING + host_reports.CHECKS:
            host_reports.forward(module.graph[name])


def _settle_assertions(module: Module, division: Division) -> None:
    for name in division.cut.conditions:
        if name in module.graph and not host_reports.silence(module.graph[name]):
            attrs = module.graph[name].attrs
            attrs["else_branch"] = attrs["then_branch"]  # a tf.cond around an assertion that holds


def _extract(module: Module, division: Division) -> None:
    division.placeholders = pruning.extract(module, division.results, division.fed)


ENGINE = Pipeline(
    "engine",
    "makes each program of a run a graph of its own, once it is decided where each node runs",
    (
        Pass(
            "drop-waits-for-other-parts",
            _drop_waits,
            "first: the session runs its parts before or after the whole program, so nothing in it waits for them",
        ),
        Pass(
            "forward-reports",
            _forward_reports,
            "while reports are there: the session shows what they report when the program has run",
            needs_ops=frozenset(host_reports.FORWARDING + host_reports.CHECKS),
        ),
        Pass(
            "settle-assertions",
            _settle_assertions,
            "while assertions are there: the session runs the step itself where one of these does not hold",
        ),
        Pass(
            "extract-program",
            _extract,
            "last: what the passes before it have cut off is no part of the program",
        ),
    ),
)


def program_of(graph_def: Any, division: Division, watching: Watching) -> Any:
    """Returns the GraphDef of a program.

    Args:
        graph_def: tf.compat.v1.GraphDef of the whole run, rewritten; it is not changed.
        division: the Division, whose `placeholders` are known afterwards.
        watching: who looks on while passes run.
    """
    module = graphdef.read(graph_def)
    pipeline.run(ENGINE, module, division, watching.of(ENGINE.name))
    program = graphdef.write(module)
    module.release()
    return program
