"""Refuses ops that XLA computes wrongly on tensors whose size is known only at run time.

The number of rows of tf.where, tf.boolean_mask, tf.dynamic_partition and tf.unique depends on the data, and so does
that of x[:n] and tf.nn.top_k(x, n) for an n that is computed, and of a tf.cond that gives x in one branch and x[:3] in
the other. XLA pads such a tensor to its largest size and keeps a count beside it. Many ops heed the count; others read
padding rows (TensorFlow 2.15.1: tf.cumsum, x[-1], pools, fused batch norm, tf.linalg.diag_part, gradients of
tf.concat). So an op may take such a tensor only if it was tested to compute what a session computes. tf.unique and
tf.where ignore the padding (open_sources.py).
"""

from __future__ import annotations

import collections
from typing import Any, Collection, Iterator, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.analysis.frames import V1_OPS
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import output_of, source_of
from npu_shim.rewriter.graphdef import functions, registry
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.control_flow.functionalization import IN_SESSION
from npu_shim.xla.passes.legalize.bodies import Given
from npu_shim.xla.passes.legalize.site import NotConstant
from npu_shim.xla.passes.shapes import flat_bodies, open_counts, static_shapes
from npu_shim.xla.passes.subgraphs import SET_ROWS

UNIQUE = ("Unique", "UniqueV2")
ALL_ROWS = "XlaRemoveDynamicDimensionSize"  # includes the padding
WITH_COUNTS = ("UniqueWithCounts", "UniqueWithCountsV2")
SOURCES = frozenset(["DynamicPartition", "Where", *UNIQUE, *WITH_COUNTS])
# sources where the number of what they take is open -> the inputs that say it
TAKING = {"Slice": (1, 2), "StridedSlice": (1, 2), "TopKV2": (1,)}
OPENING = SOURCES.union(TAKING)  # ops that make open sizes by themselves
MERGE = "Merge"  # a conditional of version 1
BRANCHING = frozenset([MERGE, *(op for op, (kind, _) in functions.KINDS.items() if kind == functions.BRANCH)])
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
    graph_def = graphdef.write(module)
    if any(_may_open(nodes) or _has_conditional(nodes) for nodes in _all_nodes(graph_def)):
        view = View(graph_def, static_shapes.of_module(module))
        if view.has_open:
            _require_sound(view)
        if context is not None:
            context.unsized = bool(view.unsized)


def _require_sound(view: View) -> None:
    """Looks at a graph, and at the bodies of its branches and loops, with the shapes that each call gives them."""
    nodes = view.graph_def.node
    for node in nodes if view.has_open else ():
        taken = view.open_inputs(node)
        if taken and view.above and node.op in UNIQUE:
            raise PlanError(view.told(node, taken, "takes padding for values in a branch or loop of version 2"))
        if taken:
            view.require_sound(node, taken)
        view.require_counts(node)
    for inner in (inner for node in nodes for inner in view.inside(node)):
        _require_sound(inner)


def _opens(function: Any, library: Mapping[str, Any], above: Sequence[str]) -> bool:
    """Whether a function may have open sizes, itself or in what it calls."""
    inner = (*above, function.signature.name)
    called = {name for node in function.node_def for name in functions.called(node, library)}
    called = called.intersection(library).difference(inner)
    own = _may_open(function.node_def) or _has_conditional(function.node_def)
    return own or any(_opens(library[name], library, inner) for name in called)


def may_be_open_inside(graph_def: Any) -> bool:
    """Whether a GraphDef or one of its functions may have open sizes."""
    if any(map(_may_open, _all_nodes(graph_def))):
        return True
    return any(map(_has_conditional, _all_nodes(graph_def))) and View(graph_def).has_open


def _all_nodes(graph_def: Any) -> Iterator[Sequence[Any]]:
    yield graph_def.node
    yield from (function.node_def for function in graph_def.library.function)


def _has_conditional(nodes: Sequence[Any]) -> bool:
    branching = [node for node in nodes if node.op in BRANCHING]
    following = {node.name for node in nodes if node.op == "NextIteration"} if branching else set()
    return any(following.isdisjoint(map(source_of, arguments.data(node))) for node in branching)


def _may_open(nodes: Sequence[Any]) -> bool:
    """Whether nodes may have open sizes by themselves: what takes a part only where no constants say which."""
    opening = [node for node in nodes if node.op in OPENING]
    if any(node.op in SOURCES for node in opening):
        return True
    packs = {node.name: node.attr["N"].i for node in nodes if node.op == "Pack"} if opening else {}
    opening = [node for node in opening if not _takes_elements(node, packs)]
    constants = {node.name for node in nodes if node.op == "Const"} if opening else set()
    return not constants.issuperset(source_of(text) for node in opening for text in arguments.data(node)[1:])


def _takes_elements(node: Any, packs: Mapping[str, int]) -> bool:
    """Whether a node is x[i] or x[i, j], whose size is known whatever i and j are; `packs` has the lengths of Packs."""
    axes = packs.get(source_of(node.input[1])) if node.op == "StridedSlice" else None
    if axes is None:
        return False
    masks = _masks(node)
    return not _shifts_axes(masks) and masks["shrink_axis_mask"] == (1 << axes) - 1


def _masks(node: Any) -> collections.Counter[str]:
    """The masks of a StridedSlice, 0 for those that it does not name: asking a NodeDef for one would add it."""
    return collections.Counter({name: attr.i for name, attr in node.attr.items() if name.endswith("_mask")})


def _shifts_axes(masks: collections.Counter[str]) -> bool:
    """Whether the k-th entry of a StridedSlice may stand for another axis than the k-th."""
    return bool(masks["ellipsis_mask"] | masks["new_axis_mask"])


def _differ(branches: Sequence[Sequence[tf.TensorShape]]) -> bool:
    """Whether branches, each of which gives tensors of these shapes, are known to give different sizes."""
    known = (filter(None, (shape.rank and shape.as_list() for shape in shapes)) for shapes in zip(*branches))
    return any(len({size for size in sizes if size is not None}) > 1 for lists in known for sizes in zip(*lists))


def _name_variables(nodes: Sequence[Any], variables: Sequence[Any]) -> None:
    """Makes a body's Placeholders for handles the variables: what is read there has their shapes, for inference."""
    for node, variable in zip(nodes, variables):
        if variable is not None and node.op == "Placeholder":
            node.op = variable.op
            for name in ("dtype", "shape"):
                node.attr[name].CopyFrom(variable.attr[name])


class View:
    """A graph's tensors of open size.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow and Placeholders of full shapes; it is not changed.
        inferred: its `static_shapes.loopless`, if that is there already.
        opening: names of nodes that are given tensors of open size.
        above: names of the functions whose bodies the graph is in; it is the last one's.
        unsized: where to note conditionals, as `unsized`.

    Attributes:
        unsized: names of conditionals, also in called bodies, of which it is not known whether their branches give the
            same sizes: of a tf.gather(x, tf.range(n)) for a fed n, say. They are not taken for open; the HLO tells.
    """

    def __init__(
        self,
        graph_def: Any,
        inferred: Any = None,
        opening: Collection[str] = (),
        above: tuple[str, ...] = (),
        unsized: set[str] | None = None,
    ) -> None:
        self.graph_def, self.above = graph_def, above
        self.unsized: set[str] = set() if unsized is None else unsized
        self._nodes: dict[str, Any] = {node.name: node for node in graph_def.node}
        self._library = {function.signature.name: function for function in graph_def.library.function}
        self._kernels = registry.xla_kernels()
        self._inferred = static_shapes.loopless(graph_def) if inferred is None else inferred
        self._origins: dict[str, str] = {}
        self._uncertain: list[str] = []
        self._origins = self._reached(opening)
        self.unsized.update(name for name in self._uncertain if name not in self._origins)

    @property
    def has_open(self) -> bool:
        """Whether a tensor may be of open size."""
        return bool(self._origins)

    def open_shape(self, text: str) -> tf.TensorShape | None:
        """The shape of a tensor, in input notation, where its size is open and its rank is known, else None."""
        if not self._is_open(text):
            return None
        name, number = output_of(text)
        shape = self._outputs(name)[number].shape
        return None if shape.rank is None else shape

    def static_shape(self, text: str) -> tf.TensorShape:
        """The shape of a tensor, in input notation, as far as it is known; of unknown rank for what only loops have."""
        name, number = output_of(text)
        tensors = self._outputs(name)
        return tensors[number].shape if number < len(tensors) else tf.TensorShape(None)

    def source(self, text: str) -> Any:
        """The NodeDef that a tensor, in input notation, comes from."""
        return self._nodes[source_of(text)]

    def depends_on_open(self, text: str) -> bool:
        """Whether a tensor, in input notation, is computed from tensors of open size."""
        pending, seen = [source_of(text)], set()
        while pending:
            name = pending.pop()
            if name in self._origins:
                return True
            if name not in seen:
                seen.add(name)
                pending += map(source_of, arguments.data(self._nodes[name]))
        return False

    def open_inputs(self, node: Any) -> list[str]:
        """The inputs of a node whose size is open."""
        return [text for text in arguments.data(node) if self._is_open(text)]

    def require_sound(self, node: Any, taken: Sequence[str]) -> None:
        """Raises PlanError if a node is not known to compute what a session does from those inputs.

        It is a NotConstant where that is known once XLA knows how much is taken.
        """
        problem = None
        if not self._is_sound(node):
            problem = "may take rows that are not there"
        elif node.op == "StridedSlice" and taken[0] == node.input[0] and self._counts_from_the_end(node):
            problem = "counts from the end of the most rows that there may be; x[-1] is x[tf.shape(x)[0] - 1]"
        if problem:
            origin = self._origin(taken)
            text = self.told(node, taken, problem)
            inputs = enumerate(arguments.data(origin))
            said = [n for n, given in inputs if n in TAKING.get(origin.op, ()) and not self._is_const(given)]
            raise NotConstant(text, origin.name, said[0]) if said else PlanError(text)

    def told(self, node: Any, taken: Sequence[str], problem: str) -> str:
        """A sentence on what a node does wrongly with those inputs."""
        origin = self._origin(taken)
        what = "takes a number of rows that depends on the data, from node '%s' (%s)" % (origin.name, origin.op)
        return "node '%s' (%s) %s: compiled by XLA it %s; %s" % (node.name, node.op, what, problem, IN_SESSION)

    def inside(self, node: Any, every: bool = False) -> Iterator[View]:
        """Yields the Views of the bodies that a node calls: of those that may have open sizes, or of `every` one."""
        called = dict.fromkeys(functions.called(node, self._library))
        for function in (self._library[name] for name in called if name in self._library and name not in self.above):
            given, opened = self._given(node, function)
            if opened or every or _opens(function, self._library, self.above):
                above = (*self.above, function.signature.name)
                body = flat_bodies.as_graph(function, self.graph_def.library, given)
                _name_variables(body.node, [self._variable(text) for text in self._taken(node)])
                yield View(body, opening=opened, above=above, unsized=self.unsized)

    def results(self) -> list[tf.TensorShape]:
        """The shapes of what a body gives."""
        return list(map(self.static_shape, flat_bodies.results(self._library[self.above[-1]], self.graph_def.library)))

    def _given(self, node, function):
        """What a call gives a function: a list of `bodies.Given`, and names of arguments of open size."""
        kind, texts = functions.kind_of(node, self._library), self._taken(node)
        shapes, values = list(map(self.static_shape, texts)), [None] * len(texts)
        if kind != functions.LOOP:  # XLA gives a loop's variables the sizes that they begin with
            values = [tf.make_ndarray(self.source(text).attr["value"].tensor) if self._is_const(text) else None
                      for text in texts]  # fmt: skip
        names = [argument.name for argument in function.signature.input_arg]
        given = [Given(shape, False, value) for shape, value in zip(shapes, values)]
        return given, [name for name, text in zip(names, texts) if self._is_open(text)]

    def _taken(self, node):
        """What a call gives the functions, in input notation."""
        return arguments.data(node)[1 if functions.kind_of(node, self._library) == functions.BRANCH else 0 :]

    def _variable(self, text):
        """The NodeDef of the variable whose handle a tensor, in input notation, is; else None."""
        name = source_of(text)
        while name in self._nodes and self._nodes[name].op == "Identity":
            name = source_of(self._nodes[name].input[0])
        return self._nodes[name] if name in self._nodes and self._nodes[name].op == "VarHandleOp" else None

    def require_counts(self, node: Any) -> None:
        """Raises PlanError if XLA bounds the size of a node wrongly, see `open_counts`."""
        problem = open_counts.problem(node, self)
        if problem:
            what = "takes a size from node '%s' that depends on a number of rows" % source_of(problem[0])
            sentence = "node '%s' (%s) %s: compiled by XLA it %s; %s"
            raise PlanError(sentence % (node.name, node.op, what, problem[1], IN_SESSION))

    def _origin(self, taken):
        return self._nodes[self._origins[source_of(taken[0])]]

    def _is_const(self, text):
        name = source_of(text)
        return name in self._nodes and self._nodes[name].op == "Const"

    def _is_open(self, text):
        name, number = output_of(text)
        tensors = self._outputs(name) if name in self._origins else ()
        return number < len(tensors) and not tensors[number].shape.is_fully_defined()

    def _outputs(self, name):
        """The tensors that a node gives, for their shapes; none for what only exists with loops."""
        if name not in self._nodes or self._nodes[name].op == "NextIteration":
            return ()
        return self._inferred.get_operation_by_name(name).outputs

    def _sizes(self, name):
        """The sizes of the tensors that a node gives, None where they are not all known; as `_outputs`."""
        if name not in self._nodes or self._nodes[name].op == "NextIteration":
            return ()
        return [sizes for _, sizes in self._inferred.results(name)]

    def _reached(self, given):
        """Maps each node that depends on an open size to the node that the size comes from."""
        pending = [name for name, node in self._nodes.items() if name in given or self._is_source(node)]
        if not pending:
            return {}
        consumers = collections.defaultdict(list)
        for node in self._nodes.values():
            for text in arguments.data(node):
                consumers[source_of(text)].append(node.name)
        origins = dict(zip(pending, pending))
        while pending:
            name = pending.pop()
            if not self._goes_on(name):
                continue  # a tensor of known size is like any other
            for consumer in consumers[name]:
                if consumer not in origins:
                    origins[consumer] = origins[name]
                    pending.append(consumer)
        return origins

    def _is_source(self, node):
        """Whether an open size comes from a node, or from a body that it calls."""
        if node.op in OPENING:
            return node.op in SOURCES or self._takes_openly(node)
        if node.op == MERGE:
            texts = arguments.data(node)
            is_of_loop = any(self.source(text).op == "NextIteration" for text in texts)
            return not is_of_loop and self._differ(node, [[self.static_shape(text)] for text in texts])
        is_choice = functions.kind_of(node, self._library) == functions.BRANCH and None in self._sizes(node.name)
        inside = list(self.inside(node, is_choice))
        if any(inner.has_open for inner in inside):
            return True
        return is_choice and self._differ(node, [inner.results() for inner in inside])

    def _differ(self, node, branches):
        """`_differ` of a conditional; notes where it is not known."""
        differ = _differ(branches)
        if not differ and not all(shape.is_fully_defined() for shapes in branches for shape in shapes):
            self._uncertain.append(node.name)
        return differ

    def _takes_openly(self, node):
        """Whether a node takes a part of open size of a tensor of known size."""
        if not node.input:
            return False
        name, number = output_of(node.input[0])
        whole = self._sizes(name)[number : number + 1]
        return bool(whole) and whole[0] is not None and self._sizes(node.name)[0] is None

    def _goes_on(self, name):
        """Whether a node propagates open sizes: its own size is open, or its values may be sizes."""
        return any(
            not tensor.shape.is_fully_defined() or tensor.dtype in (tf.int32, tf.int64)
            for tensor in self._outputs(name)
        )

    def _is_sound(self, node):
        if node.op in SOUND or node.op.startswith("ResourceApply"):
            return True
        called = functions.called(node, self._library)
        if not called:
            return node.op in tf_internals.op_defs() and node.op not in self._kernels  # XLA refuses those itself
        bodies = [node for name in called for node in self._library[name].node_def]
        plain = [inner for inner in bodies if inner.op not in ("Const", "ReadVariableOp")]
        return all(body.op not in UNIQUE and self._is_sound(body) for body in plain)

    def _counts_from_the_end(self, node):
        begin = self._nodes[source_of(node.input[1])]
        if begin.op != "Const":
            return False
        name, number = output_of(node.input[0])
        shape = self._outputs(name)[number].shape
        sizes = shape.as_list() if shape.rank is not None else []
        starts = tf.make_ndarray(begin.attr["value"].tensor)
        masks = _masks(node)
        shifted, left = _shifts_axes(masks), masks["begin_mask"]
        return any(
            start < 0 and not left >> k & 1 and (shifted or k >= len(sizes) or sizes[k] is None)
            for k, start in enumerate(starts)
        )
