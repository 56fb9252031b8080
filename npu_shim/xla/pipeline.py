"""The pass over a training step's graph before its precision is planned; the engine's parts have it, too.

GraphDef of a step --PRUNE--> --precision--> Prepared (step_function.py) --packing--> the interpreter of JAX
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from npu_shim.options.passes import Watching
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.passes import pipeline
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline
from npu_shim.xla.passes import dead_control_dependencies

PRUNE = Pipeline(
    "prune",
    "leaves what a step's fetches need",
    (
        Pass(
            "dead-control-dependencies",
            dead_control_dependencies.eliminate,
            "first: what nobody needs costs every later pass, and the precision plan would explain it",
        ),
    ),
)


def results_of(names: Iterable[str]) -> dict[str, str]:
    """Maps names of tensors ("x:0") and operations ("x") to what stands for them, as inputs name it ("x:0", "^x")."""
    return {name: name if ":" in name else "^" + name for name in names}


def module_of(graph_def: Any, results: Mapping[str, str]) -> Module:
    """Reads a GraphDef; its results are as of `Module.results`."""
    module = graphdef.read(graph_def)
    for name, text in results.items():
        module.graph.results[name] = module.graph.value(text)
    return module


def run(line: Pipeline, module: Module, watching: Watching) -> Any:
    """Runs a pipeline on a module as options ask, and returns it as a GraphDef; errors as of `pipeline.run`."""
    pipeline.run(line, module, None, watching.of(line.name))
    return graphdef.write(module)
