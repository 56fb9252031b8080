"""Stale reads: a Cast must not capture a reference variable before a write that its reader should see.

What Identity gives for a reference variable is the variable's own memory, and so is what Enter, Reshape, a Split of
aligned rows, a Tile by one and their like make of it. A reader sees what is in there when the reader runs. A Cast in
front of it reads when the Cast runs:

    v/read -> Enter -> MatMul (in a loop that assigns v)        a Cast behind v/read would give every iteration v's
    with control_dependencies([assign]): MatMul(v/read, x)      first value

So a reader that runs after a write which its input does not wait for takes the memory as it is, in float32; and so do
all readers of a variable that a loop writes, since TensorFlow's own optimizers take a Cast in a loop for an invariant.
What gives that memory stays float32 with them. Any op hands on the memory unless it is known to make its own.

A Stack keeps the memory that is pushed, and whoever pops it sees what is in there then: a loop's gradient, of a loop
that starts with v/read. So do queues, staging areas and session handles.

Whoever fetches the memory is a reader that runs last: sess.run copies what is fetched when every op has run.

    sess.run([v/read, assign])       gives v after the assignment

    D(v/read), after an assign       a Cast in D's body waits for nothing that is outside of it

A reader whose input does wait may have a Cast, which waits for the same: TensorFlow's arithmetic optimizer moves Casts
to the variable itself, also from behind what it takes for no work at all, as v/read + 0 is.

An ordinary tensor that an op writes in place (a decoder's cache, the parts of tf.parallel_stack) is memory as a
variable's is: a Cast behind it would be a copy of what is not written yet, or that others write no more.

A Cast in the script is a copy from when it runs; whoever reads it must not be led to the memory in front of it:

    c = Cast(v16/read); u: v16 += 1, after c; a Mul in float16 of c, after u        v16/read would give it the new value

Calls are read as inlining.py writes them out: the body runs after what the call waits for, and what waits for the call
runs after the body. A body that takes memory from before such a write reads it in float32: TensorFlow's own optimizer
writes the body into its caller, and moves a Cast from behind the argument to the variable, where it waits no more.
"""

from itertools import chain
from typing import Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .graph_view import GraphView, Node, consumers_of, is_border, is_border_name
from .links import with_put_outside, with_written
from .walks import reached

# ops whose outputs are memory of their own. What works element by element may write into its input's, which no op does
# to a variable's: TensorFlow takes over a buffer only where nobody else holds it.
_COMPUTES = """
    MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 SparseMatMul SparseTensorDenseMatMul _FusedMatMul Cross
    Conv2D Conv2DBackpropInput Conv2DBackpropFilter Conv3D Conv3DBackpropInput Conv3DBackpropInputV2 _FusedConv2D
    Conv3DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput
    DepthwiseConv2dNativeBackpropFilter Dilation2D Dilation2DBackpropInput Dilation2DBackpropFilter
    BiasAddGrad FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx FusedBatchNormGrad
    FusedBatchNormGradV2 FusedBatchNormGradV3 LRN LRNGrad L2Loss
    AvgPool AvgPoolGrad AvgPool3D MaxPool MaxPoolGrad MaxPoolV2 MaxPool3D
    BlockLSTM BlockLSTMV2 BlockLSTMGrad BlockLSTMGradV2 LSTMBlockCell LSTMBlockCellGrad GRUBlockCell GRUBlockCellGrad
    CudnnRNN CudnnRNNV2 CudnnRNNV3 CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3
    Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits
    Relu Relu6 LeakyRelu Elu Selu Softplus Softsign ReluGrad Relu6Grad LeakyReluGrad EluGrad SeluGrad SoftplusGrad
    SoftsignGrad SigmoidGrad TanhGrad SqrtGrad RsqrtGrad InvGrad ReciprocalGrad
    Equal NotEqual Greater GreaterEqual Less LessEqual IsNan IsInf IsFinite ApproximateEqual
    FloorDiv FloorMod Mod Maximum Minimum SquaredDifference Atan2 Abs Sign Square Sqrt Rsqrt Exp Expm1 Log Log1p
    Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Sigmoid Erf Erfc Floor Ceil Rint Round Lgamma Digamma
    Gather GatherV2 GatherNd Cumsum Cumprod SegmentSum SegmentMean UnsortedSegmentSum
    ZerosLike OnesLike Shape ShapeN Size Rank ArgMax ArgMin InTopK InTopKV2 TopK TopKV2
"""
# these make their own too, unless TensorFlow's optimizers find that they do nothing: x + 0, x * 1, x ^ 1, -(-x)
_SIMPLIFIED = """
    Add AddV2 Sub Mul MulNoNan Div DivNoNan RealDiv BiasAdd BiasAddV1 Pow Neg Reciprocal Inv DeepCopy
"""
SIMPLIFIED = frozenset(_SIMPLIFIED.split())
COPIES = SIMPLIFIED.union(_COMPUTES.split())
# where Grappler's optimizers move no Cast across: behind these it waits for what they wait for
FRAMES = frozenset(["Enter", "Exit", "NextIteration"])
CHOOSE = frozenset(["Switch", "_SwitchN", "Merge"])  # nor across these, but they go where the predicate is a constant
# Where a Cast behind these waits for what they wait for, it does so wherever Grappler moves it. Others are replaced
# when it has left out the Cast's control inputs as superfluous.
_KEEP_WAITS = """
    Identity StopGradient PreventGradient Snapshot DeepCopy CheckNumerics EnsureShape Bitcast
    Add AddV2 Sub Mul Div RealDiv BiasAdd BiasAddV1 Reshape ExpandDims Squeeze Transpose
    Slice StridedSlice Split SplitV Unpack Pack Concat ConcatV2 Tile Pad BroadcastTo Sum Mean Max Min Prod
"""
KEEP_WAITS = frozenset(_KEEP_WAITS.split())
ENTRIES, EXITS = ("in", "enter"), ("out", "var")  # how inlining.py names what takes and gives the values of a call
# these write into the memory of their first input, which is no reference
IN_PLACE = frozenset(["InplaceUpdate", "InplaceAdd", "InplaceSub", "_ParallelConcatUpdate"])
SAME_MEMORY = frozenset(["Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "EnsureShape"])
LOOKS = "IsVariableInitialized"  # takes a reference and does not write


class Readings(NamedTuple):
    """How a graph reads its reference variables.

    Attributes:
        late: positions of the ops that read a variable's memory after a write that the memory's last op does not wait
            for, of those that are fetched, and of the ops that hand them the memory.
        before: position of an op that gives a variable's memory after a write, or values that may turn out to be it ->
            positions of what lets it wait. A Cast of it waits for the same, since TensorFlow's arithmetic optimizer
            moves a Cast to the variable itself.
        copies: positions of the Casts that copy the memory of what is written.
    """

    late: FrozenSet[int] = frozenset()
    before: Mapping[int, Tuple[int, ...]] = {}
    copies: FrozenSet[int] = frozenset()


NO_READINGS = Readings()


def readings(view: GraphView) -> Readings:
    """Finds out how a graph reads its reference variables."""
    nodes, consumers = view.nodes, view.consumers()
    writers, written = _writers(view)  # written grows: position -> bits of the writers that it runs after
    if not writers:
        return NO_READINGS
    linked = list(nodes)
    held = [*with_written(view, linked), *with_put_outside(view, linked)]
    takers = consumers_of(linked) if held else consumers
    own = {position: bit for position, bit in written.items() if nodes[position].op in IN_PLACE}  # no read of a write
    controls = _controls(view)
    _spread(written, consumers, controls)
    late: Set[int] = set()
    before: Dict[int, Set[int]] = {}
    casts = set(view.of_ops(["Cast"]))
    copies: Set[int] = set()
    for variable, bits in writers.items():
        in_loop = any(nodes[consumer].op == "RefEnter" for consumer in consumers[variable])
        memory = _memory(linked, variable, takers)
        copies |= casts.intersection(chain.from_iterable(consumers[giver] for giver in memory)) - memory
        givers = [giver for giver in memory if not nodes[giver].layout.ref_outputs]
        fetched = [giver for giver in givers if giver in view.preserved and bits & ~written.get(giver, 0)]
        late.update(chain.from_iterable(_upstream(linked, giver, memory) for giver in fetched))
        if not in_loop and not any(written.get(p, 0) & bits for g in givers for p in (g, *takers[g])):
            continue  # as in most training steps: it is read before it is written
        for giver in givers:
            seen = written.get(giver, 0)
            readers = [r for r in takers[giver] if in_loop or written.get(r, 0) & bits & ~seen & ~own.get(r, 0)]
            if readers:
                late.update(readers)
                late.update(_upstream(linked, giver, memory))
        waits = _waits(nodes, consumers, controls, memory, written, bits)
        lost = _lost(nodes, consumers, waits)
        for giver in lost:
            late.update(consumers[giver], _upstream(linked, giver, memory))
        for giver in waits.keys() - lost:
            before.setdefault(giver, set()).update(waits[giver])
    waits_of = {giver: tuple(sorted(nodes_)) for giver, nodes_ in before.items()}
    return Readings(frozenset(late), waits_of, frozenset(copies))


def _writers(view: GraphView) -> Tuple[Dict[int, int], Dict[int, int]]:
    """Variable -> bits of its writers, and writer -> its bit; an optimizer writes several variables.

    What is written in place counts as a variable.
    """
    writers: Dict[int, int] = {}
    written: Dict[int, int] = {}
    for position in view.of_ops(IN_PLACE):
        bit = written.setdefault(position, 1 << len(written))
        tensor = _first_giver(view, view.nodes[position].inputs[0].node)
        writers[tensor] = writers.get(tensor, 0) | bit
    for position in view.references():
        node = view.nodes[position]
        for number in node.layout.ref_inputs:
            variable = _variable(view, node.inputs[number].node)
            if variable is not None and not node.op.startswith("Ref") and node.op != LOOKS:
                bit = written.setdefault(position, 1 << len(written))
                writers[variable] = writers.get(variable, 0) | bit
    return writers, written


def _first_giver(view: GraphView, position: int) -> int:
    """The op that makes the memory which an op gives, itself where that cannot be told."""
    while view.nodes[position].op in SAME_MEMORY:
        position = view.nodes[position].inputs[0].node
    return position


def _controls(view: GraphView) -> Dict[int, Tuple[int, ...]]:
    """What each node waits for by control inputs, those of calls and from calls included; position -> positions."""
    controls = {position: node.controls for position, node in enumerate(view.nodes) if node.controls}
    borders = [position for position, node in enumerate(view.nodes) if is_border_name(node.name)]
    positions = view.positions() if borders else {}
    for position in borders:
        name, _, role = view.nodes[position].name.rpartition("[")
        call = positions[name]
        if role.startswith(ENTRIES):
            controls[position] = view.nodes[call].controls
        elif role.startswith(EXITS):
            controls[call] = (*controls.get(call, ()), position)
    return controls


def _makes_reference(view: GraphView, position: int) -> bool:
    node = view.nodes[position]
    return bool(node.layout.ref_outputs) and not node.inputs


def _variable(view: GraphView, position: int) -> Optional[int]:
    """The variable behind a reference, through RefEnter, RefSwitch, and ops that hand it on after a write."""
    seen: Set[int] = set()
    while position not in seen:
        seen.add(position)
        if _makes_reference(view, position):
            return position
        node = view.nodes[position]
        if not node.layout.ref_outputs or not node.inputs:
            return None
        position = node.inputs[0].node
    return None


def _spread(
    written: Dict[int, int], consumers: Sequence[Sequence[int]], controls: Mapping[int, Tuple[int, ...]]
) -> None:
    """Whatever runs after a node runs after the writers that the node runs after."""
    waiting: Dict[int, List[int]] = {}
    for position, awaited in controls.items():
        for awaited_one in awaited:
            waiting.setdefault(awaited_one, []).append(position)
    wave = set(written)
    while wave:  # in waves, so that what waits for many writers is passed on once
        reached = set()
        for position in wave:
            bits = written[position]
            for consumer in (*consumers[position], *waiting.get(position, ())):
                known = written.get(consumer, 0)
                if bits & ~known:
                    written[consumer] = known | bits
                    reached.add(consumer)
        wave = reached


def _hands_on(node: Node, giver: int) -> bool:
    """Whether an op's outputs may be the memory that it takes from `giver`."""
    if node.op in COPIES or (node.op == "Cast" and node.dtypes[0] != node.dtypes[1]):
        return False
    numbers = node.layout.ref_inputs if node.layout.ref_outputs else range(len(node.inputs))
    return any(node.inputs[number].node == giver for number in numbers)


def _memory(nodes: Sequence[Node], variable: int, consumers: Sequence[Sequence[int]]) -> Set[int]:
    """Positions of the ops whose output is a variable's memory, or a reference to it."""
    return set(reached([variable], lambda giver: [
        consumer for consumer in consumers[giver] if _hands_on(nodes[consumer], giver)
    ]))  # fmt: skip


def _upstream(nodes: Sequence[Node], giver: int, memory: Set[int]) -> List[int]:
    """The ops by whose way an op has a variable's memory, itself included."""

    def sources(position: int) -> List[int]:
        is_reference = nodes[position].layout.ref_outputs
        return [] if is_reference else [port.node for port in nodes[position].inputs if port.node in memory]

    return [position for position in reached([giver], sources) if not nodes[position].layout.ref_outputs]


def _waits(
    nodes: Sequence[Node],
    consumers: Sequence[Sequence[int]],
    controls: Mapping[int, Tuple[int, ...]],
    memory: Set[int],
    written: Mapping[int, int],
    bits: int,
) -> Dict[int, Set[int]]:
    """What lets those wait that give a variable's memory after a write, or what may turn out to be it.

    Returns:
        Position of such an op -> positions that run after a write, which it or one by whose way it has the memory waits
        for.
    """
    givers = _may_give(nodes, consumers, memory, written, bits)
    waits: Dict[int, Set[int]] = {}
    for giver in givers:
        inputs = () if nodes[giver].op in CHOOSE else nodes[giver].inputs
        others = (port.node for port in inputs if port.node not in givers and port.node not in memory)
        waits[giver] = {other for other in (*controls.get(giver, ()), *others) if written.get(other, 0) & bits}
    waiting = list(givers)
    while waiting:
        giver = waiting.pop()
        for reader in givers.intersection(consumers[giver]):
            if waits[giver] - waits[reader]:
                waits[reader] |= waits[giver]
                waiting.append(reader)
    return {giver: waiters for giver, waiters in waits.items() if waiters}


def _lost(nodes: Sequence[Node], consumers: Sequence[Sequence[int]], waits: Mapping[int, Set[int]]) -> Set[int]:
    """Positions of the ops of which no Cast can wait: in functions' bodies, and behind what Grappler replaces."""
    waiting = [giver for giver in waits if is_border(nodes[giver]) or nodes[giver].op not in KEEP_WAITS]
    return set(reached(waiting, lambda giver: waits.keys() & set(consumers[giver])))


def _may_give(
    nodes: Sequence[Node],
    consumers: Sequence[Sequence[int]],
    memory: Set[int],
    written: Mapping[int, int],
    bits: int,
) -> Set[int]:
    """Positions of the ops after a write that give a variable's memory, or may when TensorFlow has simplified them."""

    def takers(giver: int) -> Iterator[int]:
        for reader in consumers[giver]:
            node = nodes[reader]
            after = written.get(reader, 0) & bits and not node.layout.ref_outputs
            if after and (node.op in SIMPLIFIED or _hands_on(node, giver)):
                yield reader

    givers = reached([giver for giver in memory if not nodes[giver].layout.ref_outputs], takers)
    return {giver for giver in givers if written.get(giver, 0) & bits and nodes[giver].op not in FRAMES}
