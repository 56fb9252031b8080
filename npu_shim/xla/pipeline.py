"""The passes that make a training step one program: three pipelines, each a list in the order in which it runs.

    GraphDef of a step --PRUNE--> --precision--> --RESOURCES--> Prepared --SHAPES--> functional GraphDef

PRUNE and RESOURCES run once for a step, SHAPES for each set of feed shapes. `npu-shim opt --list` prints these lists,
`npu-shim opt GRAPH --passes ...` runs rows of them. TensorFlow's converter of control flow works on GraphDef protos;
other rows ask TensorFlow for the shapes of a graph that they write and it imports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping

from npu_shim.options.passes import Watching
from npu_shim.rewriter.analysis.frames import V1_OPS
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.passes import pipeline
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline, Property
from npu_shim.rewriter.tables.slow_kernels import SLOW
from npu_shim.xla.passes import dead_control_dependencies, function_names, legalize, window_barriers
from npu_shim.xla.passes.attention import fusion
from npu_shim.xla.passes.attention.report import ELSEWHERE, OFF, Attention
from npu_shim.xla.passes.control_flow import functionalization, if_conversion
from npu_shim.xla.passes.legalize import cpu_kernels
from npu_shim.xla.passes.memory import constant_barriers, ordering, rematerialization
from npu_shim.xla.passes.memory.rematerialization.report import Recomputation
from npu_shim.xla.passes.resources import (
    branch_reads,
    dynamic_stitch,
    fetched,
    host_reports,
    own_updates,
    random_ops,
    references,
    slice_writes,
)
from npu_shim.xla.passes.resources.late_reads import VARIABLES
from npu_shim.xla.passes.shapes import (
    array_rows,
    compile_time,
    dynamic_shapes,
    list_bounds,
    list_growth,
    list_sizes,
    open_calls,
    open_slices,
    open_sources,
    optionals,
    row_gradients,
    sorted_values,
)


@dataclass
class Context:
    """What the passes of a step are told, and what they tell.

    Attributes:
        recompute: one of `options.words.RECOMPUTE`.
        on_cpu: whether the step is for a CPU.
        attention: one of `options.words.ATTENTION`.
        has_kernels: whether what runs the step has kernels for attention.
        unsized: whether a conditional's branches may give different sizes, for all that `refuse-open-sizes` knows.
        fused: what `fuse-attention` has found, None before it.
        recomputation: what `rematerialize` has found, None before it.
    """

    recompute: str = "auto"
    on_cpu: bool = False
    attention: str = "auto"
    has_kernels: bool = False
    unsized: bool = field(default=False, compare=False)
    fused: Attention | None = field(default=None, compare=False)
    recomputation: Recomputation | None = field(default=None, compare=False)


def _rematerialize(module: Module, context: Context) -> None:
    context.recomputation = rematerialization.recomputed(module, context.recompute, context.on_cpu)


def _fuse_attention(module: Module, context: Context) -> None:
    if context.attention == "off":
        context.fused = OFF
    else:
        context.fused = fusion.fused(module) if context.has_kernels else ELSEWHERE


def _float32_on_cpu(module: Module, context: Context) -> None:
    if context.on_cpu:
        cpu_kernels.as_float32(module)


def _of(ops: Iterable[str], where: str) -> Callable[[Module], Iterable[str]]:
    kinds = frozenset(ops)
    return lambda module: ("'%s' (%s) %s" % (node.name, node.op, where) for node in module.graph if node.op in kinds)


NO_REFERENCES = Property("no reference variables", _of(VARIABLES, "is one"))
NO_SLICE_WRITES = Property("no assignments to slices", _of([slice_writes.OP], "is one"))
FUNCTIONAL = Property("functional control flow", _of(V1_OPS, "is not"))

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

RESOURCES = Pipeline(
    "resources",
    "gives a step explicit state: resource variables, reads outside of branches, stateless random ops",
    (
        Pass(
            "remove-host-reports",
            host_reports.eliminate,
            "first: prints and assertions take strings, which no later pass understands",
            needs_ops=frozenset(host_reports.SILENT + host_reports.FORWARDING),
        ),
        Pass(
            "anchor-fetches",
            fetched.anchor,
            "before whatever removes a tensor: from here on every fetch is a node that stays",
        ),
        Pass(
            "order-own-updates",
            own_updates.sequence,
            "while reads are the script's own and in their branches, where one that waits for an update must stay",
            needs_ops=own_updates.ASSIGNS,
        ),
        Pass(
            "hoist-branch-reads",
            branch_reads.hoist,
            "while reads of resource variables are the script's own: those that the next pass makes stay in place",
            needs_ops=frozenset(["Switch"]),
        ),
        Pass(
            "reference-to-resource",
            references.to_resources,
            "XLA has no reference variables; what follows knows resource variables only",
            ensures=(NO_REFERENCES,),
            needs_ops=frozenset(VARIABLES),
        ),
        Pass(
            "lower-slice-writes",
            slice_writes.lower,
            "after the conversion of variables, which makes such writes of StridedSliceAssign",
            requires=(NO_REFERENCES,),
            ensures=(NO_SLICE_WRITES,),
            needs_ops=frozenset([slice_writes.OP]),
        ),
        Pass(
            "lower-dynamic-stitch",
            dynamic_stitch.lower,
            "before shapes are known: it needs the form in which TensorFlow writes a partitioned lookup",
            needs_ops=frozenset(compile_time.STITCHES),
        ),
        Pass(
            "stateless-random",
            random_ops.to_stateless,
            "last: it adds a variable of its own, and names ops by the graph as it is",
            requires=(NO_REFERENCES,),
            needs_ops=random_ops.OPS,
        ),
    ),
)

SHAPES = Pipeline(
    "shapes",
    "makes a step with feeds of full shapes a graph that XLA compiles as a whole",
    (
        Pass(
            "inline-open-calls",
            open_calls.inline,
            "first: what looks after tensors of open size looks at the nodes of the graph",
            needs_ops=dynamic_shapes.MAY_OPEN,
        ),
        Pass(
            "optionals-to-values",
            optionals.lower,
            "before the rest: an Optional hides a value from every pass that asks for shapes",
            needs_ops=optionals.OPS,
        ),
        Pass(
            "bound-row-gradients",
            row_gradients.bound,
            "before legalization, which asks for the sizes of what loops append",
            needs_ops=frozenset(["NextIteration"]),
        ),
        Pass(
            "mask-open-uniques",
            open_sources.mask,
            "of tf.unique, and of tf.where: before legalization, which gives tf.unique padding that these masks know",
            needs_ops=open_sources.OPS,
        ),
        Pass(
            "legalize",
            legalize.lower,
            "while loops have TensorFlow 1's form, in which it finds what a list or a sum is made of",
            needs_ops=legalize.OPS,
        ),
        Pass(
            "gather-sorted-values",
            sorted_values.gather,
            "after legalization, which sorts too, and before the check of open sizes, which looks at what is gathered",
            needs_ops=sorted_values.SORTS,
        ),
        Pass(
            "count-open-slices",
            open_slices.count_rows,
            "before the check of open sizes, which takes these slices for sound",
            needs_ops=frozenset([open_slices.SLICE]),
        ),
        Pass(
            "refuse-open-sizes",
            dynamic_shapes.require_sound,
            "after legalization, which gives many ops a form that is right on padding; changes nothing",
            needs_ops=dynamic_shapes.MAY_OPEN,
        ),
        Pass(
            "array-rows-to-writes",
            array_rows.lower,
            "with loops still in TensorFlow 1's form, and after legalization, which gives arrays their sizes",
            needs_ops=frozenset([array_rows.OP]),
        ),
        Pass(
            "functionalize",
            functionalization.to_functional,
            "after whatever knows loops by their Enter and Exit; TensorFlow's own converter takes a GraphDef",
            ensures=(FUNCTIONAL,),
            needs_ops=V1_OPS,
        ),
        Pass(
            "refuse-growing-lists",
            list_growth.require_fixed,
            "when loops of both versions are functional, whose counters it bounds; before lengths are folded",
            requires=(FUNCTIONAL,),
            needs_ops=list_growth.OPS,
        ),
        Pass(
            "bound-kept-lists",
            list_bounds.bound,
            "of loops that are functional: those of version 1 keep values in Stacks, which functionalization bounds",
            requires=(FUNCTIONAL,),
            needs_ops=frozenset([list_bounds.EMPTY]),
        ),
        Pass(
            "fold-list-sizes",
            list_sizes.fold,
            "of lists that do not grow: what it makes in a body is a constant of that body",
            requires=(FUNCTIONAL,),
            needs_ops=list_sizes.OPS,
        ),
        Pass(
            "predicate-updates",
            if_conversion.predicate,
            "on If: a skipped update keeps its variable from being updated in place",
            requires=(FUNCTIONAL,),
            needs_ops=frozenset(if_conversion.IFS),
        ),
        Pass(
            "insert-constant-barriers",
            constant_barriers.insert,
            "on While and If, across which XLA takes a variable for the constant that it was",
            requires=(FUNCTIONAL,),
        ),
        Pass(
            "order-reads-before-writes",
            ordering.order_reads,
            "when all reads and writes are there",
            requires=(FUNCTIONAL,),
        ),
        Pass(
            "fuse-attention",
            _fuse_attention,
            "before rematerialization, which leaves calls as they are: a kernel keeps little for its gradient",
            requires=(FUNCTIONAL,),
        ),
        Pass(
            "rematerialize",
            _rematerialize,
            "after the order of reads and writes: what it computes again comes after the forward pass",
            requires=(FUNCTIONAL,),
        ),
        Pass(
            "float32-kernels-on-cpu",
            _float32_on_cpu,
            "after whatever looks for products and their sums, which finds them in the dtypes that were decided",
            requires=(FUNCTIONAL,),
            needs_ops=frozenset(SLOW),
        ),
        Pass(
            "insert-window-barriers",
            window_barriers.insert,
            "behind whatever looks at what is in front of a sum",
            needs_ops=window_barriers.OPS,
        ),
        Pass(
            "unique-function-names",
            function_names.uniquify,
            "last: the names are a hash of all that the step is, as a GraphDef: it stays one from here on",
        ),
    ),
    given=(NO_REFERENCES,),
)

PIPELINES = (PRUNE, RESOURCES, SHAPES)


def results_of(names: Iterable[str]) -> dict[str, str]:
    """Maps names of tensors ("x:0") and operations ("x") to what stands for them, as inputs name it ("x:0", "^x")."""
    return {name: name if ":" in name else "^" + name for name in names}


def module_of(graph_def: Any, results: Mapping[str, str]) -> Module:
    """Reads a GraphDef; its results are as of `Module.results`."""
    module = graphdef.read(graph_def)
    for name, text in results.items():
        module.graph.results[name] = module.graph.value(text)
    return module


def run(line: Pipeline, module: Module, context: Context, watching: Watching) -> Any:
    """Runs a pipeline on a module as options ask, and returns it as a GraphDef; errors as of `pipeline.run`."""
    pipeline.run(line, module, context, watching.of(line.name))
    return graphdef.write(module)
