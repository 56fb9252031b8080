"""Writes the calls of a plan in place of the nodes of its attention. No TensorFlow.

    q, k, v, bias, hidden, seed      -> forward call  -> out, most, sums
    the same, out, most, sums, d_out -> backward call -> dq, dk, dv, dbias

What calls take and return is laid out as [b, h, rows, columns]; transposes stand around them where the graph has
another layout.
"""

from __future__ import annotations

from typing import Mapping, Sequence

from npu_shim.pjrt.attention import spec as specs
from npu_shim.pjrt.attention.spec import Spec
from npu_shim.rewriter.ir.attributes import DType, Tensor
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.rewriter.tables import dtypes
from npu_shim.xla.passes.attention.matching.contents import SHAPE_OPS
from npu_shim.xla.passes.attention.matching.contractions import Operand
from npu_shim.xla.passes.attention.matching.dropout import STATEFUL
from npu_shim.xla.passes.attention.matching.pattern import Match
from npu_shim.xla.passes.attention.matching.terms import Bias, Fill, Hidden

BOOL, INT8, INT32, UINT64 = (DType(dtypes.NUMBERS[name]) for name in ("bool", "int8", "int32", "uint64"))
TYPED = {"Const": "dtype", "Reshape": "T", "Transpose": "T"}  # the attribute that says the dtype of a result
LAYOUTS = {"out": "bhse", "dq": "bhsd", "dk": "bhtd", "dv": "bhte", "dbias": "bhst"}


def apply(graph: Graph, matches: Sequence[Match]) -> None:
    """Replaces attention of a graph by calls; `matches` are those of `pattern.plan`."""
    replaced: dict[Value, Value] = {}
    for match in matches:
        _Writer(graph, match, replaced).write()


class _Writer:
    """Writes the calls of one Match.

    Args:
        graph: the Graph.
        match: the Match.
        replaced: results of attention -> what stands for them by now; one may be an operand of another.
    """

    def __init__(self, graph: Graph, match: Match, replaced: dict[Value, Value]) -> None:
        self._graph, self._match, self._walk, self._replaced = graph, match, match.walk, replaced
        self._origin = graph[match.name]

    def write(self) -> None:
        """Adds the calls, gives them the results' users, and removes what they stand for."""
        match, walk = self._match, self._walk
        fetched = {key: value.node.name for key, value in self._graph.results.items()}
        assert walk.v is not None
        pairs = ((walk.q, "bhsd"), (walk.k, "bhtd"), (walk.v, "bhte"))
        given = [self._as_laid_out(operand, letters) for operand, letters in pairs]
        given += [self._bias()] if match.forward.bias is not None else []
        given += [self._hidden()] if match.forward.hidden is not None else []
        given += [self._seed()] if match.forward.rate else []
        forward = self._call(match.forward, given)
        values, last = {"out": forward[0]}, forward[0].node
        if match.backward is not None and walk.d_out is not None:
            taken = [*given, *forward, self._as_laid_out(walk.d_out, "bhse")]
            names = [result.name for result in match.backward.results]
            gradients = self._call(match.backward, taken)
            values.update(zip(names, gradients))
            last = gradients[0].node
        for result in walk.results:
            old = result.operand
            self._replaced[old.value] = self._as_it_was(values[result.name], old, LAYOUTS[result.name])
            old.value.replace_by(self._replaced[old.value])
        self._have_wait_for(last)
        self._remove()
        self._name_again(fetched)

    def _name_again(self, fetched: Mapping[str, str]) -> None:
        """Gives what is fetched the name by which it is: results of the graph -> names of their nodes."""
        results = self._graph.results
        for key, name in fetched.items():
            value = results[key]
            if value.node.name != name and name not in self._graph:
                attrs = {"T": self._type_of(value)}
                self._graph.add(name, "Identity", [value], attrs=attrs, origin=self._origin)
            if value.node.name != name:
                results[key] = self._graph[name].value

    def _call(self, spec: Spec, given: Sequence[Value]) -> list[Value]:
        returned = tuple(_dtype(result.dtype) for result in spec.results)
        node = self._add(spec.kind, specs.CALL, given, {"Tout": returned, "spec": spec.as_json().encode()})
        return [node.output(number) for number in range(len(spec.results))]

    # -- layouts -------------------------------------------------------------------------------------------------------

    def _as_laid_out(self, operand: Operand, letters: str) -> Value:
        """An operand in four dimensions."""
        own = "".join(letter for letter in letters if letter in operand.axes)
        value = self._transposed(self._now(operand.value), operand.axes, own)
        return value if own == letters else self._reshaped(value, self._walk.shape_of(letters))

    def _now(self, value: Value) -> Value:
        """What stands for a value by now."""
        return self._replaced.get(value, value)

    def _as_it_was(self, value: Value, old: Operand, letters: str) -> Value:
        """A call's result as the graph had it."""
        own = "".join(letter for letter in letters if letter in old.axes)
        shape = self._walk.contents.shape(old.value) or ()
        if own == old.axes == letters:
            return value
        kept = old.axes.replace("1", "")  # without the dimensions that a sum with keep_dims leaves
        if own == kept != old.axes:
            return self._reshaped(value, shape)
        if sorted(own) != sorted(letters):
            value = self._reshaped(value, self._walk.shape_of(own) if own != old.axes else shape)
        value = self._transposed(value, own, kept)
        return self._reshaped(value, shape) if kept != old.axes else value

    def _transposed(self, value: Value, axes: str, wanted: str) -> Value:
        if axes == wanted:
            return value
        order = self._constant("order", INT32, [axes.index(letter) for letter in wanted])
        dtype = self._type_of(value)
        return self._add("transposed", "Transpose", [value, order], {"T": dtype, "Tperm": INT32}).value

    def _reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        sizes = self._constant("shape", INT32, shape)
        return self._add("reshaped", "Reshape", [value, sizes], {"T": self._type_of(value), "Tshape": INT32}).value

    def _type_of(self, value: Value) -> DType:
        """The dtype of an operand or of a call's result."""
        if value.node.op == specs.CALL and "Tout" in value.node.attrs:
            return value.node.attrs["Tout"][value.index]  # type: ignore[no-any-return]
        if value.node.op in TYPED:
            return value.node.attrs[TYPED[value.node.op]]  # type: ignore[no-any-return]
        return _dtype(self._match.forward.dtype)

    # -- bias and seed -------------------------------------------------------------------------------------------------

    def _bias(self) -> Value:
        """The steps that make the bias, one upon the other, in four dimensions or fewer."""
        dtype = _dtype(self._match.forward.bias_dtype)
        total: Value | None = None
        for step in self._match.arranged.bias:
            if isinstance(step, Bias):
                one = self._one_bias(step, dtype)
                total = one if total is None else self._add("biases", "AddV2", [total, one], {"T": dtype}).value
            else:
                total = self._filled(step, total, dtype)
        assert total is not None
        return total

    def _one_bias(self, bias: Bias, dtype: DType) -> Value:
        """A bias times its factor, in four dimensions."""
        value, shape = self._narrow(bias.value)
        if bias.dtype != repr(dtype):
            value = self._add("bias", "Cast", [value], {"SrcT": _dtype(bias.dtype), "DstT": dtype}).value
        if bias.factor != 1:
            factor = self._constant("factor", dtype, bias.factor)
            value = self._add("bias", "Mul", [value, factor], {"T": dtype}).value
        return self._broadcastable("bias", value, shape, dtype)

    def _filled(self, fill: Fill, total: Value | None, dtype: DType) -> Value:
        """What a bias is, with a number where scores are hidden."""
        number = self._constant("fill", dtype, fill.number)
        rest = self._constant("none", dtype, 0.0) if total is None else total
        sides = [number, rest] if fill.hidden.when else [rest, number]
        return self._add("filled", "SelectV2", [self._bools(fill.hidden), *sides], {"T": dtype}).value

    def _hidden(self) -> Value:
        """What hides scores, int8, in four dimensions."""
        first, *more = [
            self._bools(mask) if mask.when else self._add("shown", "LogicalNot", [self._bools(mask)], {}).value
            for mask in self._match.arranged.hidden
        ]
        for other in more:
            first = self._add("hidden", "LogicalOr", [first, other], {}).value
        return self._add("hidden", "Cast", [first], {"SrcT": BOOL, "DstT": INT8}).value

    def _bools(self, mask: Hidden) -> Value:
        """The bools of a mask, in four dimensions."""
        value, shape = self._narrow(mask.value)
        if mask.dtype != "bool":
            dtype = _dtype(mask.dtype)
            attrs = {"T": dtype, "incompatible_shape_error": True}
            value = self._add("mask", "NotEqual", [value, self._constant("zero", dtype, 0)], attrs).value
        return self._broadcastable("mask", value, shape, BOOL)

    def _broadcastable(self, name: str, value: Value, shape: tuple[int, ...], dtype: DType) -> Value:
        """A value of four dimensions, in the order of b, h, s and t, each 1 or that of the scores."""
        axes = self._walk.axes
        sizes = dict(zip(reversed(axes), reversed(shape)))
        own = "".join(letter for letter in "bhst" if letter in axes)
        wanted = {letters: tuple(sizes.get(letter, 1) for letter in letters) for letters in (axes, own, "bhst")}
        if wanted[axes] != shape:
            value = self._sized(name, value, wanted[axes], dtype)
        if own != axes:
            order = self._constant("order", INT32, [axes.index(letter) for letter in own])
            value = self._add(name, "Transpose", [value, order], {"T": dtype, "Tperm": INT32}).value
        return value if own == "bhst" else self._sized(name, value, wanted["bhst"], dtype)

    def _sized(self, name: str, value: Value, shape: tuple[int, ...], dtype: DType) -> Value:
        sizes = self._constant("shape", INT32, shape)
        return self._add(name, "Reshape", [value, sizes], {"T": dtype, "Tshape": INT32}).value

    def _narrow(self, value: Value) -> tuple[Value, tuple[int, ...]]:
        """A bias or a mask and its shape, without what constants alone make large, but for a bias with a gradient."""
        if self._match.backward is not None and self._match.backward.bias_gradient:
            return self._now(value), self._walk.contents.shape(value) or ()
        narrow = self._match.narrowing.written(value, self._graph)
        return self._now(narrow), self._match.narrowing.shape(value)

    def _seed(self) -> Value:
        """The op's seed and the number of the step, int32 [2]."""
        assert self._walk.mask is not None
        mask = self._walk.mask
        if mask.draw.op == STATEFUL:
            seeds = {name: mask.draw.attrs.get(name, 0) for name in ("seed", "seed2")}
            mask.draw.turn_into(specs.SEED, mask.draw.inputs, seeds)
            return mask.draw.value
        bounds = [self._constant(name, INT32, [number]) for name, number in (("begin", 1), ("size", 1))]
        step = self._add("step", "Slice", [mask.counter, *bounds], {"T": UINT64, "Index": INT32}).value
        axis = self._constant("axis", INT32, 0)
        both = self._add("both", "ConcatV2", [mask.key, step, axis], {"N": 2, "T": UINT64, "Tidx": INT32}).value
        return self._add("seed", "Cast", [both], {"SrcT": UINT64, "DstT": INT32, "Truncate": False}).value

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _add(self, name: str, op: str, inputs: Sequence[Value], attrs: Mapping[str, object]) -> Node:
        name = self._graph.free_name("%s/attention/%s" % (self._match.name, name))
        return self._graph.add(name, op, inputs, attrs=dict(attrs), origin=self._origin)

    def _constant(self, name: str, dtype: DType, numbers: object) -> Value:
        dims, elements = ((len(numbers),), tuple(numbers)) if isinstance(numbers, (list, tuple)) else ((), (numbers,))
        attrs = {"dtype": dtype, "value": Tensor(dtype, dims, elements)}
        return self._add(name, "Const", (), attrs).value

    def _have_wait_for(self, call: Node) -> None:
        """Has what waits for a tf.group of its nodes wait for a call."""
        nodes = self._walk.nodes
        for group in [node for node in nodes if node.op == "NoOp"]:
            for user in [user for user in group.users() if user not in nodes]:
                user.set_controls([call if control is group else control for control in user.controls])

    def _remove(self) -> None:
        readers = dict.fromkeys(user for node in self._walk.nodes for user in node.users() if user.op in SHAPE_OPS)
        for reader in readers:
            self._make_constant(reader)
        gone = [node for node in self._walk.nodes if node.op != specs.SEED]  # which stands where numbers were drawn
        self._graph.remove([*gone, *readers])

    def _make_constant(self, reader: Node) -> None:
        """Has the users of a node that gives shapes take constants."""
        dtype = INT32 if reader.op == "Rank" else reader.attrs.get("out_type", INT32)
        for value in dict.fromkeys([reader.value, *reader.outputs()]):
            if value.index == CONTROL:
                for user in list(value.users):
                    user.set_controls([control for control in user.controls if control is not reader])
                continue
            array = self._walk.contents.array(value)
            assert array is not None  # the shapes of all values of attention are known
            value.replace_by(self._constant("sizes", dtype, array.tolist()))


def _dtype(name: str) -> DType:
    return DType(dtypes.NUMBERS[name])
