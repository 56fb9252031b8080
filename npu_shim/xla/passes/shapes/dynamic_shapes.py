"""Refuses ops that XLA computes wrongly on tensors whose size is known only at run time.

The number of rows of tf.where, tf.boolean_mask, tf.dynamic_partition and tf.unique depends on the data, and so does
that of x[:n] and tf.nn.top_k(x, n) for an n that is computed, and of a tf.cond that gives x in one branch and x[:3] in
the other. XLA pads such a tensor to its largest size and keeps a count beside it. Many ops heed the count; others read
padding rows (TensorFlow 2.15.1: tf.cumsum, x[-1], pools, fused batch norm, tf.linalg.diag_part, gradients of
tf.concat). So an op may take such a tensor only if it was tested to compute what a session computes. tf.unique and
tf.where ignore the padding (open_sources.py).
"""

from __future__ import annotations

from typing import Any, Collection, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.analysis.frames import V1_OPS
from npu_shim.rewriter.analysis.order import NEXT, closes_loop
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.walks import behind, reached
from npu_shim.rewriter.graphdef import registry
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.function_calls import BRANCH, KINDS, LOOP
from npu_shim.xla.passes.control_flow.functionalization import IN_SESSION
from npu_shim.xla.passes.legalize import bodies
from npu_shim.xla.passes.legalize.bodies import Given
from npu_shim.xla.passes.legalize.site import NotConstant
from npu_shim.xla.passes.shapes import open_counts, static_shapes
from npu_shim.xla.passes.subgraphs import SET_ROWS

UNIQUE = ("Unique", "UniqueV2")
ALL_ROWS = "XlaRemoveDynamicDimensionSize"  # includes the padding
WITH_COUNTS = ("UniqueWithCounts", "UniqueWithCountsV2")
SOURCES = frozenset(["DynamicPartition", "Where", *UNIQUE, *WITH_COUNTS])
# sources where the number of what they take is open -> the inputs that say it
TAKING = {"Slice": (1, 2), "StridedSlice": (1, 2), "TopKV2": (1,)}
OPENING = SOURCES.union(TAKING)  # ops that make open sizes by themselves
MERGE = "Merge"  # a conditional of version 1
BRANCHING = frozenset([MERGE, *(op for op, (kind, _) in KINDS.items() if kind == BRANCH)])
MAY_OPEN = OPENING.union(BRANCHING)  # no other op makes an open size
# source: tried one by one, with and without gradients, TensorFlow 2.15.1
SOUND = frozenset([
    # element by element
    "Abs", "Acos", "Acosh", "Add", "AddN", "AddV2", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "BiasAdd", "Cast",
    "Ceil", "CheckNumerics", "ClipByValue", "Cos", "Cosh", "Div", "DivNoNan", "Elu", "EluGrad", "EnsureShape",
    "Equal", "Erf", "Erfc", "Exp", "Expm1", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Identity",
    "IdentityN", "Inv", "InvGrad", "IsFinite", "IsInf", "IsNan", "LeakyRelu", "LeakyReluGrad", "Less", "LessEqual",
    "Lgamma", "Log", "Log1p", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mod", "Mul", "MulNoNan",
    "Neg", "NotEqual", "OnesLike", "Pow", "PreventGradient", "RealDiv", "Reciprocal", "ReciprocalGrad", "Relu",
    "Relu6", "Relu6Grad", "ReluGrad", "Rint", "Round", "Rsqrt", "RsqrtGrad", "Select", "SelectV2", "Selu", "SeluGrad",
    "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Sinh", "Snapshot", "Softplus", "SoftplusGrad", "Softsign",
    "SoftsignGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "StopGradient", "Sub", "Tan", "Tanh",
    "TanhGrad", "TruncateDiv", "TruncateMod", "ZerosLike",
    # of all rows
    "All", "Any", "ArgMax", "ArgMin", "BiasAddGrad", "L2Loss", "Max", "Mean", "Min", "Prod", "Sum",
    # of each row
    "BatchMatMul", "BatchMatMulV2", "BroadcastTo", "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "Einsum",
    "LogSoftmax", "MatMul", "OneHot", "Softmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
    # rows at other places
    "ConcatV2", "ExpandDims", "Gather", "GatherNd", "GatherV2", "Pack", "Pad", "PadV2", "Reshape", "ResourceGather",
    "ResourceGatherNd", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate", "Reverse", "ReverseV2",
    "ScatterNd", "Split", "SplitV", "Squeeze", "StridedSlice", "StridedSliceGrad", "Tile", "TopK", "TopKV2",
    "Transpose", "Unpack", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum",
    # ops that use only their shape
    "BroadcastGradientArgs", "DynamicPartition", "NoOp", "Rank", "Shape", "ShapeN", "Size", "Unique", "UniqueV2",
    "Where",
    ALL_ROWS, SET_ROWS, *V1_OPS,
    # XLA itself refuses it; that of a tf.where is behind ALL_ROWS (open_sources.py)
    "XlaOptimizationBarrier",
])  # fmt: skip


def require_sound(module: Module, context: Any = None) -> None:
    """Looks for what XLA computes differently where a size is open; changes nothing.

    Args:
        module: a step's, with v1 control flow and Placeholders of full shapes.
        context: a `pipeline.Context` that is told of conditionals of unknown size, see `View.unsized`; may be None.

    Raises:
        PlanError: an op not known to be correct on a tensor of open size takes one; the error names its node.
    """
    if any(_may_open(graph) or _has_conditional(graph) for graph in _opening(module)):
        view = View(module.graph)
        if view.has_open:
            _require_sound(view)
        if context is not None:
            context.unsized = bool(view.unsized)


def _require_sound(view: View) -> None:
    """Looks at a graph, and at the bodies of its branches and loops, with the shapes that each call gives them."""
    nodes = list(view.graph)
    for node in nodes if view.has_open or view.counts else ():
        taken = view.open_inputs(node)
        if taken and view.above and node.op in UNIQUE:
            raise PlanError(view.told(node, taken, "takes padding for values in a branch or loop of version 2"))
        if taken:
            view.require_sound(node, taken)
        view.require_counts(node)
    for inner in (inner for node in nodes for inner in view.inside(node)):
        _require_sound(inner)


def _opens(function: Function, above: Sequence[Function]) -> bool:
    """Whether a function may have open sizes, itself or in what it calls."""
    inner = (*above, function)
    called = {callee for node in function for callee in calls.functions(node)}.difference(inner)
    return _may_open(function) or _has_conditional(function) or any(_opens(callee, inner) for callee in called)


def may_be_open_inside(module: Module) -> bool:
    """Whether a module's graph or one of its functions may have open sizes."""
    graphs = list(_opening(module))
    return any(map(_may_open, graphs)) or (any(map(_has_conditional, graphs)) and View(module.graph).has_open)


def _opening(module: Module) -> Iterator[Graph]:
    """The graphs with ops that may make open sizes; no other body is read for that."""
    return module.graphs_with(MAY_OPEN.__contains__)


def _has_conditional(graph: Graph) -> bool:
    return any(node.op in BRANCHING and not closes_loop(node) for node in graph)


def _may_open(graph: Graph) -> bool:
    """Whether nodes may have open sizes by themselves: what takes a part only where no constants say which."""
    opening = [node for node in graph if node.op in OPENING]
    if any(node.op in SOURCES for node in opening):
        return True
    sizes = [value.node for node in opening if not _takes_elements(node) for value in node.inputs[1:]]
    return any(node.op != "Const" for node in sizes)


def _takes_elements(node: Node) -> bool:
    """Whether a node is x[i] or x[i, j], whose size is known whatever i and j are."""
    if node.op != "StridedSlice" or node.inputs[1].node.op != "Pack":
        return False
    axes = node.inputs[1].node.attrs["N"]
    return not _shifts_axes(node) and node.attrs.get("shrink_axis_mask", 0) == (1 << axes) - 1


def _shifts_axes(node: Node) -> bool:
    """Whether the k-th entry of a StridedSlice may stand for another axis than the k-th."""
    return any(node.attrs.get(name) for name in ("ellipsis_mask", "new_axis_mask"))


def _differ(branches: Sequence[Sequence[tf.TensorShape]]) -> bool:
    """Whether branches, each of which gives tensors of these shapes, are known to give different sizes."""
    known = (filter(None, (shape.rank and shape.as_list() for shape in shapes)) for shapes in zip(*branches))
    return any(len({size for size in sizes if size is not None}) > 1 for lists in known for sizes in zip(*lists))


def _name_variables(protos: Sequence[Any], variables: Sequence[Node | None]) -> None:
    """Makes a body's Placeholders for handles the variables: what is read there has their shapes, for inference."""
    for proto, variable in zip(protos, variables):
        if variable is not None and proto.op == "Placeholder":
            described = graphdef.written(variable, type(proto)())
            proto.op = variable.op
            for name in ("dtype", "shape"):
                proto.attr[name].CopyFrom(described.attr[name])


class _Argument(NamedTuple):
    """What a call gives an argument of a body.

    Attributes:
        shape: its shape.
        value: its value if it is a constant.
        is_open: whether its size is open.
        variable: the variable whose handle it is, None for others.
        counts: whether it is a number computed of open sizes.
        falls: whether it is one that is computed of differences.
    """

    shape: tf.TensorShape
    value: np.ndarray | None
    is_open: bool
    variable: Node | None
    counts: bool
    falls: bool


class View:
    """A graph's tensors of open size.

    Args:
        graph: a module's graph, with v1 control flow and Placeholders of full shapes, or a function's body.
        inferred: of a body, what `static_shapes.loopless` gives of it.
        given: of a body, what each of its arguments is.
        opening: arguments that are tensors of open size.
        above: the functions whose bodies the graph is in; it is the last one's.
        unsized: where to note conditionals, as `unsized`.

    Attributes:
        counts: arguments that are numbers computed of open sizes.
        falling: those that are computed of differences.
        unsized: names of conditionals, also in called bodies, of which it is not known whether their branches give the
            same sizes: of a tf.gather(x, tf.range(n)) for a fed n, say. They are not taken for open; the HLO tells.
    """

    def __init__(
        self,
        graph: Graph,
        inferred: Any = None,
        given: Mapping[Node, _Argument] | None = None,
        opening: Collection[Node] = (),
        above: tuple[Function, ...] = (),
        unsized: set[str] | None = None,
    ) -> None:
        self.graph, self.above = graph, above
        self.unsized: set[str] = set() if unsized is None else unsized
        self._given = {} if given is None else given
        self.counts = frozenset(argument for argument, known in self._given.items() if known.counts)
        self.falling = frozenset(argument for argument, known in self._given.items() if known.falls)
        self._kernels = registry.xla_kernels()
        self._inferred = static_shapes.of_module(graph.module) if inferred is None else inferred
        self._origins: dict[Node, Node] = {}
        self._uncertain: list[Node] = []
        self._origins = self._reached(opening)
        self.unsized.update(node.name for node in self._uncertain if node not in self._origins)

    @property
    def has_open(self) -> bool:
        """Whether a tensor may be of open size."""
        return bool(self._origins)

    def open_shape(self, value: Value) -> tf.TensorShape | None:
        """The shape of a value where its size is open and its rank is known, else None."""
        if not self._is_open(value):
            return None
        shape = self._outputs(value.node)[value.index].shape
        return None if shape.rank is None else shape

    def static_shape(self, value: Value) -> tf.TensorShape:
        """The shape of a value as far as it is known; of unknown rank for what only loops have."""
        tensors = self._outputs(value.node)
        return tensors[value.index].shape if value.index < len(tensors) else tf.TensorShape(None)

    def constant(self, value: Value) -> np.ndarray | None:
        """What a value is, if it is a constant here or where the body is called."""
        if value.node in self._given:
            return self._given[value.node].value
        if value.node.op != "Const":
            return None
        tensor = value.node.attrs["value"]
        if tensor.proto is not None:
            return tf.make_ndarray(tensor.proto)  # type: ignore[no-any-return]
        return np.array(tensor.numbers(), tf.as_dtype(int(tensor.dtype)).as_numpy_dtype).reshape(tensor.dims)

    def depends_on_open(self, value: Value) -> bool:
        """Whether a value is computed from tensors of open size."""
        sources = reached([value.node], lambda node: [source.node for source in node.inputs])
        return any(source in self._origins or source in self.counts for source in sources)

    def open_inputs(self, node: Node) -> list[Value]:
        """The inputs of a node whose size is open."""
        return [value for value in node.inputs if self._is_open(value)]

    def require_sound(self, node: Node, taken: Sequence[Value]) -> None:
        """Raises PlanError if a node is not known to compute what a session does from those inputs.

        It is a NotConstant where that is known once XLA knows how much is taken.
        """
        problem = None
        if not self._is_sound(node):
            problem = "may take rows that are not there"
        elif node.op == "StridedSlice" and taken[0] is node.inputs[0] and self._counts_from_the_end(node):
            problem = "counts from the end of the most rows that there may be; x[-1] is x[tf.shape(x)[0] - 1]"
        if problem:
            origin = self._origins[taken[0].node]
            text = self.told(node, taken, problem)
            inputs = enumerate(origin.inputs)
            said = [n for n, value in inputs if n in TAKING.get(origin.op, ()) and self.constant(value) is None]
            raise NotConstant(text, origin.name, said[0]) if said else PlanError(text)

    def told(self, node: Node, taken: Sequence[Value], problem: str) -> str:
        """A sentence on what a node does wrongly with those inputs."""
        origin = self._origins[taken[0].node]
        what = "takes a number of rows that depends on the data, from node '%s' (%s)" % (origin.name, origin.op)
        return "node '%s' (%s) %s: compiled by XLA it %s; %s" % (node.name, node.op, what, problem, IN_SESSION)

    def inside(self, node: Node, every: bool = False) -> Iterator[View]:
        """Yields the Views of the bodies that a node calls: of those that may have open sizes, or of `every` one."""
        for function in dict.fromkeys(calls.functions(node)):
            if function in self.above:
                continue
            arguments = dict(zip(function.arguments, self._arguments(node)))
            opening = [argument for argument, known in arguments.items() if known.is_open]
            counted = any(known.counts for known in arguments.values())
            if opening or counted or every or _opens(function, self.above):
                given = [Given(known.shape, False, known.value) for known in arguments.values()]
                flat = bodies.as_graph_def(function, given)
                _name_variables(flat.node, [known.variable for known in arguments.values()])
                above = (*self.above, function)
                yield View(function, static_shapes.loopless(flat), arguments, opening, above, self.unsized)

    def results(self) -> list[tf.TensorShape]:
        """The shapes of what a body gives."""
        return [self.static_shape(value) for value in self.above[-1].returned]

    def _arguments(self, node: Node) -> list[_Argument]:
        """What a call gives functions. XLA gives a loop's variables the sizes that they begin with."""
        begins = calls.kind(node) == LOOP
        return [self._argument(value, None if begins else self.constant(value)) for value in calls.given(node)]

    def _argument(self, value: Value, constant: np.ndarray | None) -> _Argument:
        counts = self._counts(value)
        falls = counts and open_counts.falls(value, self)
        return _Argument(self.static_shape(value), constant, self._is_open(value), self._variable(value), counts, falls)

    def _counts(self, value: Value) -> bool:
        tensors = self._outputs(value.node) if self.has_open or self.counts else ()
        is_number = value.index < len(tensors) and tensors[value.index].dtype in (tf.int32, tf.int64)
        return is_number and open_counts.varies(value, self)

    def _variable(self, value: Value) -> Node | None:
        """The node of the variable whose handle a value is; None for others."""
        node: Node = behind(value).node
        if node in self._given:
            return self._given[node].variable
        return node if node.op == "VarHandleOp" else None

    def require_counts(self, node: Node) -> None:
        """Raises PlanError if XLA bounds the size of a node wrongly, see `open_counts`."""
        problem = open_counts.problem(node, self)
        if problem:
            what = "takes a size from node '%s' that depends on a number of rows" % problem[0].node.name
            sentence = "node '%s' (%s) %s: compiled by XLA it %s; %s"
            raise PlanError(sentence % (node.name, node.op, what, problem[1], IN_SESSION))

    def _is_open(self, value: Value) -> bool:
        tensors = self._outputs(value.node) if value.node in self._origins else ()
        return value.index < len(tensors) and not tensors[value.index].shape.is_fully_defined()

    def _outputs(self, node: Node) -> Sequence[Any]:
        """The tensors that a node gives, for their shapes; none for what only exists with loops."""
        return () if node.op in NEXT else self._inferred.get_operation_by_name(node.name).outputs

    def _sizes(self, node: Node) -> Sequence[Any]:
        """The sizes of the tensors that a node gives, None where they are not all known; as `_outputs`."""
        return () if node.op in NEXT else [sizes for _, sizes in self._inferred.results(node.name)]

    def _reached(self, given: Collection[Node]) -> dict[Node, Node]:
        """Maps each node that depends on an open size to the node that the size comes from."""
        pending = [node for node in self.graph if node in given or self._is_source(node)]
        origins = dict(zip(pending, pending))
        while pending:
            node = pending.pop()
            if not self._goes_on(node):
                continue  # a tensor of known size is like any other
            for user in (user for value in node.values() if value.index != CONTROL for user in value.users):
                if user not in origins:
                    origins[user] = origins[node]
                    pending.append(user)
        return origins

    def _is_source(self, node: Node) -> bool:
        """Whether an open size comes from a node, or from a body that it calls."""
        if node.op in OPENING:
            return node.op in SOURCES or self._takes_openly(node)
        if node.op == MERGE:
            return not closes_loop(node) and self._differ(node, [[self.static_shape(value)] for value in node.inputs])
        is_choice = calls.kind(node) == BRANCH and None in self._sizes(node)
        inside = list(self.inside(node, is_choice))
        if any(inner.has_open for inner in inside):
            return True
        return is_choice and self._differ(node, [inner.results() for inner in inside])

    def _differ(self, node: Node, branches: Sequence[Sequence[tf.TensorShape]]) -> bool:
        """`_differ` of a conditional; notes where it is not known."""
        differ = _differ(branches)
        if not differ and not all(shape.is_fully_defined() for shapes in branches for shape in shapes):
            self._uncertain.append(node)
        return differ

    def _takes_openly(self, node: Node) -> bool:
        """Whether a node takes a part of open size of a tensor of known size."""
        if not node.inputs:
            return False
        taken = node.inputs[0]
        whole = self._sizes(taken.node)[taken.index : taken.index + 1]
        return bool(whole) and whole[0] is not None and self._sizes(node)[0] is None

    def _goes_on(self, node: Node) -> bool:
        """Whether a node propagates open sizes: its own size is open, or its values may be sizes."""
        return any(
            not tensor.shape.is_fully_defined() or tensor.dtype in (tf.int32, tf.int64)
            for tensor in self._outputs(node)
        )

    def _is_sound(self, node: Node) -> bool:
        if node.op in SOUND or node.op.startswith("ResourceApply"):
            return True
        if not calls.names(node):
            return node.op in tf_internals.op_defs() and node.op not in self._kernels  # XLA refuses those itself
        inner = [inner for function in calls.functions(node) for inner in function if inner not in function.arguments]
        plain = [inner for inner in inner if inner.op not in ("Const", "ReadVariableOp")]
        return all(inner.op not in UNIQUE and self._is_sound(inner) for inner in plain)

    def _counts_from_the_end(self, node: Node) -> bool:
        starts = self.constant(node.inputs[1])
        if starts is None:
            return False
        shape = self.static_shape(node.inputs[0])
        sizes = shape.as_list() if shape.rank is not None else []
        shifted, left = _shifts_axes(node), node.attrs.get("begin_mask", 0)
        return any(
            start < 0 and not left >> k & 1 and (shifted or k >= len(sizes) or sizes[k] is None)
            for k, start in enumerate(starts)
        )
