"""Writes the calls of a plan in place of the nodes of its attention. No TensorFlow.

    q, k, v, bias, seed       -> forward call  -> out, lse
    the same, out, lse, d_out -> backward call -> dq, dk, dv

What calls take and return is laid out as [b, h, rows, columns]; transposes stand around them where the graph has
another layout.
"""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

from npu_shim.pjrt.attention.spec import Spec
from npu_shim.rewriter.ir.attributes import Callee, DType, Shape, Tensor
from npu_shim.rewriter.ir.graph import CONTROL, Graph, Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables import dtypes
from npu_shim.xla.passes.attention.matching.contents import SHAPE_OPS
from npu_shim.xla.passes.attention.matching.contractions import Operand
from npu_shim.xla.passes.attention.matching.pattern import Match
from npu_shim.xla.passes.attention.matching.terms import Bias

CALL = "StatelessCase"  # of one branch: XLA's bridge inlines a plain call before anybody can see it
BOOL, INT32, UINT64 = (DType(dtypes.NUMBERS[name]) for name in ("bool", "int32", "uint64"))
TYPED = {"Const": "dtype", "Reshape": "T", "Transpose": "T"}  # the attribute that says the dtype of a result
LAYOUTS = {"out": "bhse", "dq": "bhsd", "dk": "bhtd", "dv": "bhte", "dbias": "bhst"}


def apply(module: Module, matches: Sequence[Match], body: Callable[[Module, Spec], Function]) -> None:
    """Replaces attention by calls.

    Args:
        module: a Module; its graph is changed, its library gets the functions.
        matches: of `pattern.plan`.
        body: makes the function of a Spec.
    """
    replaced: dict[Value, Value] = {}
    for match in matches:
        for spec in filter(None, (match.forward, match.backward)):
            if spec.name not in module.functions:
                module.functions.add(body(module, spec))
        _Writer(module.graph, match, replaced).write()


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
        index = self._constant("index", INT32, 0)
        attrs = {
            "Tin": tuple(_dtype(argument.dtype) for argument in spec.arguments),
            "Tout": tuple(_dtype(result.dtype) for result in spec.results),
            "branches": (Callee(spec.name),),
            "output_shapes": tuple(Shape(result.shape) for result in spec.results),
        }
        node = self._add(spec.kind, CALL, [index, *given], attrs)
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
        if "1" in old.axes or sorted(own) != sorted(letters):
            own = old.axes if "1" in old.axes else own
            value = self._reshaped(value, self._walk.shape_of(own) if own != old.axes else shape)
        return self._transposed(value, own, old.axes)

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
        if value.node.op == CALL and "Tout" in value.node.attrs:
            return value.node.attrs["Tout"][value.index]  # type: ignore[no-any-return]
        if value.node.op in TYPED:
            return value.node.attrs[TYPED[value.node.op]]  # type: ignore[no-any-return]
        return _dtype(self._match.forward.dtype)

    # -- bias and seed -------------------------------------------------------------------------------------------------

    def _bias(self) -> Value:
        assert self._walk.scores is not None
        first, *more = [self._one_bias(bias) for bias in self._walk.scores.biases]
        for other in more:
            first = self._add("biases", "AddV2", [first, other], {"T": _dtype(self._match.forward.bias_dtype)}).value
        return first

    def _one_bias(self, bias: Bias) -> Value:
        """A bias times its factor, in four dimensions."""
        walk, dtype = self._walk, _dtype(self._match.forward.bias_dtype)
        value, shape = self._narrow(bias.value)
        if bias.bools:
            value = self._add("bias", "LogicalNot", [value], {}).value if bias.bools == "false" else value
            value = self._add("bias", "Cast", [value], {"SrcT": BOOL, "DstT": dtype}).value
        elif bias.dtype != self._match.forward.bias_dtype:
            value = self._add("bias", "Cast", [value], {"SrcT": _dtype(bias.dtype), "DstT": dtype}).value
        if bias.factor != 1:
            factor = self._constant("factor", dtype, bias.factor)
            value = self._add("bias", "Mul", [value, factor], {"T": dtype}).value
        sizes = dict(zip(reversed(walk.axes), reversed(shape)))
        whole = [sizes.get(letter, 1) for letter in walk.axes]
        if tuple(whole) != shape:
            sized = self._constant("shape", INT32, whole)
            value = self._add("bias", "Reshape", [value, sized], {"T": dtype, "Tshape": INT32}).value
        return self._bias_laid_out(value, sizes, dtype)

    def _narrow(self, value: Value) -> tuple[Value, tuple[int, ...]]:
        """A bias, and its shape, without what constants alone make large, unless its gradient is asked for."""
        if self._match.backward is not None and self._match.backward.bias_gradient:
            return self._now(value), self._walk.contents.shape(value) or ()
        narrow = self._match.narrowing.written(value, self._graph)
        return self._now(narrow), self._match.narrowing.shape(value)

    def _bias_laid_out(self, value: Value, sizes: dict[str, int], dtype: DType) -> Value:
        own = "".join(letter for letter in "bhst" if letter in self._walk.axes)
        if own != self._walk.axes:
            order = self._constant("order", INT32, [self._walk.axes.index(letter) for letter in own])
            value = self._add("bias", "Transpose", [value, order], {"T": dtype, "Tperm": INT32}).value
        if own != "bhst":
            sized = self._constant("shape", INT32, [sizes.get(letter, 1) for letter in "bhst"])
            value = self._add("bias", "Reshape", [value, sized], {"T": dtype, "Tshape": INT32}).value
        return value

    def _seed(self) -> Value:
        """The op's seed and the number of the step, int32 [2]."""
        assert self._walk.mask is not None
        mask = self._walk.mask
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
        readers = [user for node in self._walk.nodes for user in node.users() if user.op in SHAPE_OPS]
        for reader in dict.fromkeys(readers):
            self._make_constant(reader)
        self._graph.remove([*self._walk.nodes, *dict.fromkeys(readers)])

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
