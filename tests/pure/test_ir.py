"""The graph IR: use lists, names, order, and GraphDef and text in and out."""

import module_text
import protos
import pytest
from definitions import known

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.ir import attributes, definitions, graphdef, text
from npu_shim.rewriter.ir.attributes import Callee, DType, Shape, Tensor, Unbound
from npu_shim.rewriter.ir.definitions import Argument, Definition
from npu_shim.rewriter.ir.graph import CONTROL, Node
from npu_shim.rewriter.ir.module import Function
from npu_shim.rewriter.tables.dtypes import NUMBERS

FLOAT16, FLOAT32 = DType(NUMBERS["float16"]), DType(NUMBERS["float32"])
FORWARD = """\
x:Placeholder{dtype=float32, shape=<?,4>}
w:Const{dtype=float32, value=float32<2>(1.0, 2.5)}
s:Split{T=float32, num_split=2}(w, x) on "/device:CPU:0"
y:Mul{T=float32}(s, s:1, ^w)
n:NoOp(^y, ^x)
return loss:0=y, train=^n
"""
CALL = """\
x:Placeholder{dtype=float32}
c:PartitionedCall{Tin=[float32], Tout=[float32, int32], f=@top}(x)
d:Identity{T=int32}(c:1)
function top(a: float32) -> (v: float32, i: int32)
  t:TopK{T=float32}(a)
  k:Identity{T=int32}(t:1, ^a)
  return i=k, v=t
  effects k=k
end
"""


def parsed(source):
    return module_text.parse(source, known)


def uses(graph):
    """Each use of a value in a graph, as the inputs of its nodes say: (value, user) -> how often."""
    counts = {}
    for node in graph:
        for value in [*node.inputs, *(control.output(CONTROL) for control in node.controls)]:
            counts[value, node] = counts.get((value, node), 0) + 1
    return counts


def kept_uses(graph):
    """Likewise, as the use lists say."""
    values = [value for node in graph for value in node.outputs()]
    return {(value, user): count for value in values for user, count in value.users.items()}


def message(source):
    return graphdef.write(parsed(source), protos.GraphDef)


@pytest.mark.parametrize("source", [FORWARD, CALL])
def test_text_is_read_and_written_alike(source):
    assert text.show(parsed(source)) == source


def test_statements_may_stand_in_one_line():
    assert text.show(parsed("x:Placeholder y:Mul(x,x); z:NoOp(^y)")) == "x:Placeholder\ny:Mul(x, x)\nz:NoOp(^y)\n"


@pytest.mark.parametrize(
    "value", ["true", "-3", "2.5", "7.62939453125e-06", "inf", "'a\\n\"'", "<>", "<*>", "<2,?>", "float16", "string",
              "[]", "[1, 2]", "[float32, bool]", "[<2>, <*>]", "@f{T=int32, n=3}", "$T", "none", "int64<2,1>(3, -4)",
              "bool<2>(true, false)", "float16<1>(0.5)", "bfloat16<2>(1.5, -2.0)", "float32<0>()", "['a', 'b']",
              "float32_ref", "uint8<>(7)"],
)  # fmt: skip
def test_attributes_keep_their_kinds_through_text_and_protos(value):
    source = f"x:Op{{a={value}}}\n"
    assert text.show(parsed(source)) == source
    again = graphdef.read(message(source), known)
    assert text.show(again) == source
    assert again.graph["x"].attrs["a"] == parsed(source).graph["x"].attrs["a"]


def test_attributes_have_python_types_by_their_kind():
    attrs = parsed("x:Op{t=int32, i=3, b=true, f=2.0, s='a', l=[1], h=<1>, g=@f, u=$T, n=none}").graph["x"].attrs
    kinds = {"t": DType, "i": int, "b": bool, "f": float, "s": bytes, "l": tuple, "h": Shape, "g": Callee, "u": Unbound}
    assert {name: type(attrs[name]) for name in kinds} == kinds
    assert attrs["n"] is None


def test_an_attribute_of_another_type_is_refused():
    graph = parsed("x:Op").graph
    graph["x"].attrs["a"] = "text"
    with pytest.raises(TypeError, match="an attribute is 'text', expected one of bool, DType"):
        graphdef.write(graph.module, protos.GraphDef)


@pytest.mark.parametrize(("stored", "numbers"), [
    ({"int_val": [3]}, (3, 3, 3)), ({"int_val": [1, 2]}, (1, 2, 2)), ({}, (0, 0, 0)),
    ({"tensor_content": b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff"}, (1, 2, -1)),
])  # fmt: skip
def test_constants_are_read_in_each_way_that_they_are_stored(stored, numbers):
    graph = protos.GraphDef()
    tensor = graph.node.add(name="c", op="Const").attr["value"].tensor
    tensor.dtype = NUMBERS["int32"]
    tensor.tensor_shape.dim.add().size = 3
    for field, content in stored.items():
        if isinstance(content, bytes):
            tensor.tensor_content = content
        else:
            getattr(tensor, field).extend(content)
    constant = graphdef.read(graph, known).graph["c"].attrs["value"]
    assert constant.numbers() == numbers
    assert constant == Tensor(NUMBERS["int32"], (3,), numbers)
    assert constant != Tensor(NUMBERS["int32"], (3,), (0, 0, 1))


def test_half_precision_constants_are_numbers_not_bits():
    graph = message("h:Const{value=float16<2>(1.0, -0.25)} b:Const{value=bfloat16<2>(3.0, -0.5)}")
    assert list(graph.node[0].attr["value"].tensor.half_val) == [0x3C00, 0xB400]
    assert list(graph.node[1].attr["value"].tensor.half_val) == [0x4040, 0xBF00]
    read = graphdef.read(graph, known).graph
    assert read["h"].attrs["value"].numbers() == (1.0, -0.25)
    assert read["b"].attrs["value"].numbers() == (3.0, -0.5)


def test_equal_constants_are_one_key():
    one, other = (parsed(FORWARD).graph["w"].attrs["value"] for _ in range(2))
    assert one is not other
    assert len({one, other}) == 1
    assert isinstance(hash(one), int)
    assert repr(one) == "Tensor(float32, (2,), (1.0, 2.5))"
    assert (one == 1) is False


def test_constants_of_text_are_compared_by_what_is_stored():
    graph = protos.GraphDef()
    for name, content in (("a", b"x"), ("same", b"x"), ("other", b"y")):
        tensor = graph.node.add(name=name, op="Const").attr["value"].tensor
        tensor.dtype = NUMBERS["string"]
        tensor.string_val.append(content)
    values = {node.name: node.attrs["value"] for node in graphdef.read(graph, known).graph}
    assert values["a"].numbers() is None
    assert values["a"] == values["same"]
    assert values["a"] != values["other"]


def test_a_constant_of_bools_that_stores_none_is_false():
    graph = protos.GraphDef()
    tensor = graph.node.add(name="c", op="Const").attr["value"].tensor
    tensor.dtype = NUMBERS["bool"]
    tensor.tensor_shape.dim.add().size = 2
    assert text.show(graphdef.read(graph, known)) == "c:Const{value=bool<2>(false, false)}\n"


def test_long_constants_are_abbreviated_and_not_read_again():
    shown = text.show(parsed("c:Const{value=int32<17>(%s)}" % ", ".join(map(str, range(17)))))
    assert shown.startswith("c:Const{value=int32<17>(0, 1, 2, 3, ... ")
    with pytest.raises(ConfigError, match="line 1 of the graph: expected a value before"):
        parsed(shown)
    whole = "c:Const{value=int32<16>(%s)}\n" % ", ".join(map(str, range(16)))
    assert text.show(parsed(whole)) == whole


# -- GraphDef ----------------------------------------------------------------------------------------------------------


def test_an_untouched_module_is_the_same_graph_def():
    graph = message(CALL)
    module = graphdef.read(graph, known)
    assert graphdef.write(module) is graph
    assert module.functions["top"].results  # and reading a body changes nothing
    assert graphdef.write(module) is graph


def test_nodes_that_nobody_touched_keep_their_bytes():
    graph = message(FORWARD)
    graph.node[3].input[0] = "s:0"  # as a script may write it
    module = graphdef.read(graph, known)
    module.graph["x"].attrs["shape"] = Shape((2, 4))
    assert [node.is_untouched for node in module.graph] == [False, True, True, True, True]
    written = graphdef.write(module)
    assert list(written.node[3].input) == ["s:0", "s:1", "^w"]
    assert list(written.node[1:]) == list(graph.node[1:])
    assert [dim.size for dim in written.node[0].attr["shape"].shape.dim] == [2, 4]
    assert [dim.size for dim in graph.node[0].attr["shape"].shape.dim] == [-1, 4]  # the one that was read stays
    assert written.versions == graph.versions


@pytest.mark.parametrize("change", [
    lambda node: node.attrs.__setitem__("T", DType(2)), lambda node: node.attrs.__delitem__("T"),
    lambda node: node.set_op("Add"), lambda node: node.set_device("d"),
])  # fmt: skip
def test_a_change_beside_the_inputs_leaves_them_as_they_were_written(change):
    graph = message(FORWARD)
    graph.node[3].input[0] = "s:0"
    module = graphdef.read(graph, known)
    change(module.graph["y"])
    assert list(graphdef.write(module).node[3].input) == ["s:0", "s:1", "^w"]
    module.graph["y"].set_controls([])
    assert list(graphdef.write(module).node[3].input) == ["s", "s:1"]


def test_a_device_is_read_and_a_new_node_has_none():
    graph = graphdef.read(message(FORWARD), known).graph
    assert [node.device for node in graph] == ["", "", "/device:CPU:0", "", ""]
    assert Node(graph, "new", "A").device == ""


def test_results_stay_by_their_names_when_the_graph_def_is_another():
    module = parsed(FORWARD)
    version = module.version
    graphdef.replace(module, message(FORWARD))
    assert module.version > version
    assert module.results() == {"loss:0": "y", "train": "^n"}  # told without reading the graph
    assert module.graph.results == {"loss:0": module.graph.value("y"), "train": module.graph.value("^n")}
    assert module.results() == {"loss:0": "y", "train": "^n"}


def test_a_released_module_is_empty_and_its_graph_def_stays():
    graph = message(CALL)
    module = graphdef.read(graph, known)
    body = module.functions["top"]
    module.release()
    assert not module.graph.nodes
    assert not body.nodes
    assert module.source is graph


def test_a_changed_node_is_written_as_what_it_is_now():
    module = graphdef.read(message(FORWARD), known)
    graph = module.graph
    graph["y"].set_op("Add")
    graph["y"].set_device("/device:GPU:0")
    del graph["y"].attrs["T"]
    graph["n"].set_controls([graph["w"], graph["w"]])
    written = graphdef.write(module)
    assert text.show(graphdef.read(written, known)).splitlines()[3:] == [
        'y:Add(s, s:1, ^w) on "/device:GPU:0"',
        "n:NoOp(^w)",
    ]


def test_reading_an_attribute_does_not_make_it():
    graph = message(FORWARD)
    module = graphdef.read(graph, known)
    assert module.graph["n"].attrs.get("T") is None
    assert "T" not in module.graph["n"].attrs
    with pytest.raises(KeyError, match=r"node 'n' \(NoOp\) has no attribute T"):
        module.graph["n"].attrs["T"]
    assert not graph.node[4].attr


@pytest.mark.parametrize(("nodes", "problem"), [
    ("y:A x:A x:B", "the graph has two nodes 'x'"),
    ("layer:A y:B(laier)", "node 'y' reads 'laier', which is not in the graph (did you mean 'layer'?)"),
    ("y:B(^x)", "node 'y' reads 'x', which is not in the graph"),
])  # fmt: skip
def test_graphs_that_are_none_are_refused(nodes, problem):
    graph = protos.GraphDef()
    protos.nodes(nodes, graph.node)
    with pytest.raises(ConfigError) as raised:
        graphdef.read(graph, known)
    assert problem in str(raised.value)


@pytest.mark.parametrize(("source", "problem"), [
    ("x:A x:B", "the text has two nodes 'x'"),
    ("y:B(x)", "'y' reads 'x', which is not in the text"),
    ("x:A\ny:B{a}", "line 2 of the graph: expected = before '}'"),
    ("x:A\ny:B(x", "line 2 of the graph: expected , before 'the end'"),
    ("x:A & y:B", "line 1 of the graph: expected a node before '& y:B'"),
    ("\nx:A\n" + 50 * "&", "line 3 of the graph: expected a node before '%s'" % (40 * "&")),
])  # fmt: skip
def test_texts_that_are_none_are_refused(source, problem):
    with pytest.raises(ConfigError) as raised:
        parsed(source)
    assert problem in str(raised.value)


# -- functions ---------------------------------------------------------------------------------------------------------


def test_functions_read_like_graphs():
    module = graphdef.read(message(CALL), known)
    body = module.functions["top"]
    assert [node.name for node in body.arguments] == ["a"]
    assert list(map(str, body["t"].inputs)) == ["a"]
    assert list(map(str, body["k"].inputs)) == ["t:1"]  # t:indices:0 in the FunctionDef
    assert {name: str(value) for name, value in body.results.items()} == {"v": "t", "i": "k"}
    assert body["a"].output(CONTROL).users == {body["k"]: 1}
    assert body["a"].attrs["T"] == NUMBERS["float32"]
    assert list(body.effects) == ["k"]


def test_inputs_in_a_body_name_an_argument_or_an_output_and_its_tensor():
    graph = message("""\
function two(a: float32, n: int32) -> (v: float32)
  s:Split{T=float32, num_split=2}(n, a)
  y:Mul{T=float32}(a, s:1)
  return v=y
end
""")
    split, product = graph.library.function[0].node_def
    assert list(product.input) == ["a", "s:output:1"]
    split.input[1] = "a:0"  # as a script may write it
    body = graphdef.read(graph, known).functions["two"]
    assert list(map(str, body["s"].inputs)) == ["n", "a"]
    assert list(map(str, body["y"].inputs)) == ["a", "s:1"]


@pytest.mark.parametrize("is_read", [True, False])
def test_a_function_that_nobody_touched_keeps_its_bytes(is_read):
    graph = message(CALL)
    graph.library.function[0].node_def[0].input[0] = "a:0"
    module = graphdef.read(graph, known)
    assert not is_read or module.functions["top"].results
    module.graph["d"].set_op("Snapshot")
    assert graphdef.write(module).library == graph.library


def test_a_body_with_two_nodes_of_one_name_is_refused():
    graph = message(CALL)
    graph.library.function[0].node_def[1].name = "t"
    with pytest.raises(ConfigError, match="the graph has two nodes 't'"):
        assert graphdef.read(graph, known).functions["top"]


def test_a_changed_body_is_written_in_the_notation_of_functions():
    graph = message(CALL)
    module = graphdef.read(graph, known)
    body = module.functions["top"]
    body["k"].value.replace_by(body["t"].output(1))
    body.add("again", "Identity", [body["t"].output(1)], attrs={"T": DType(3)})
    function = graphdef.write(module).library.function[0]
    assert [list(node.input) for node in function.node_def] == [["a"], ["t:indices:0", "^a"], ["t:indices:0"]]
    assert dict(function.ret) == {"v": "t:values:0", "i": "t:indices:0"}
    assert function.signature == graph.library.function[0].signature


def test_a_node_of_a_body_that_becomes_another_op_is_read_by_that_ops_outputs():
    """Regression: what read it still named the outputs of the op that it was."""
    module = graphdef.read(message(CALL), known)
    body = module.functions["top"]
    nodes = message("""\
a:Placeholder{dtype=float32}
p:Split{T=float32, num_split=2}(a, a)
t:Split{T=float32, num_split=2}(p:1, a)
""").node
    graphdef.insert(body, [nodes[1]])
    graphdef.become(body["t"], nodes[2])
    function = graphdef.write(module).library.function[0]
    inputs = {node.name: list(node.input) for node in function.node_def}
    assert inputs == {"p": ["a", "a"], "t": ["p:output:1", "a"], "k": ["t:output:1", "^a"]}
    assert dict(function.ret) == {"v": "t:output:0", "i": "k:output:0"}


def test_the_library_knows_signatures_without_bodies():
    module = graphdef.read(message(CALL), known)
    assert module.definition("top").inputs[0].dtype == NUMBERS["float32"]
    assert module.definition("Mul").name == "Mul"
    assert module.definition("none") is None
    assert not module.functions.read_ones()
    assert not Definition("f", (), (), {}).is_stateful
    assert list(module.functions) == ["top"]
    assert len(module.functions) == 1


def test_an_op_is_what_its_op_def_says(monkeypatch):
    op_def = protos.OpDef(name="Sum")
    op_def.input_arg.add(name="x", type_attr="T")
    op_def.attr.add(name="T", type="type", default_value={"type": 1}, allowed_values={"list": {"type": [1, 19]}})
    op_def.attr.add(name="N", type="int")
    monkeypatch.setattr(tf_internals, "op_def", {"Sum": op_def}.get)
    monkeypatch.setattr(definitions, "_registered", {})
    definition = definitions.registered("Sum")
    assert definition.inputs == (Argument("x", type_attr="T"),)
    assert definition.attributes == {"T": ("type", DType(1), (DType(1), DType(19))), "N": ("int", None, ())}
    assert definitions.registered("Product") is None
    node = parsed("x:Sum{N=3}").graph["x"]
    assert [definitions.attribute(node, definition, name) for name in ("T", "N", "other")] == [DType(1), 3, None]
    assert list(definitions.expanded(definition.inputs, node, definition)) == [(definition.inputs[0], 1)]


def test_a_tensor_whose_dtype_nobody_says_has_dtype_0():
    node, definition = parsed("x:Placeholder").graph["x"], known("Placeholder")
    assert list(definitions.expanded(definition.outputs, node, definition)) == [(definition.outputs[0], 0)]


def test_arguments_are_shown_with_what_they_are():
    signature = Definition("f", (
        Argument("a", NUMBERS["float32"]), Argument("r", NUMBERS["float32"], is_ref=True), Argument("t", type_attr="T"),
        Argument("n", type_attr="T", number_attr="N"), Argument("l", list_attr="L"),
    ), (), {}, True)  # fmt: skip
    module = parsed("")
    module.functions.add(Function(module, "f", signature))
    assert text.show(module) == "stateful function f(a: float32, r: &float32, t: T, n: N*T, l: *L) -> ()\nend\n"
    source = "stateful function f(a: float32, r: &float32) -> ()\nend\n"
    assert text.show(parsed(source)) == source
    assert [argument.is_ref for argument in parsed(source).functions["f"].signature.inputs] == [False, True]


def test_the_signature_of_a_new_function_names_what_it_runs():
    module = parsed("")
    function = Function(module, "f", Definition("f", (), (), {}, True))
    function.effects["w"] = function.add("w", "NoOp")
    written = graphdef.write_function(function, protos.GraphDef().library.function.add())
    assert list(written.signature.control_output) == ["w"]
    assert dict(written.control_ret) == {"w": "w"}


def test_a_node_that_turns_into_another_op_is_read_by_that_ops_outputs():
    module = graphdef.read(message(CALL), known)
    body = module.functions["top"]
    body["t"].turn_into("Split", [body["a"].value, body["a"].value], {"T": FLOAT32, "num_split": 2})
    assert text.show_node(body["t"]) == "t:Split{T=float32, num_split=2}(a, a)"
    function = graphdef.write(module).library.function[0]
    assert [list(node.input) for node in function.node_def] == [["a", "a"], ["t:output:1", "^a"]]
    assert dict(function.ret) == {"v": "t:output:0", "i": "k:output:0"}


def test_what_is_said_of_a_nodes_types_goes_with_its_dtypes():
    proto = message(FORWARD)
    for node in proto.node:
        node.experimental_type = "a product"
    graph = graphdef.read(proto, known).graph
    graph["x"].attrs["shape"] = Shape((2, 4))
    graph["y"].attrs["T"] = FLOAT16
    graph["s"].attrs["list"] = (FLOAT16, FLOAT16)
    written = {node.name: node.experimental_type for node in graphdef.write(graph.module).node}
    assert written == {"x": "a product", "w": "a product", "s": "", "y": "", "n": "a product"}


def test_a_function_is_added_under_a_name_of_its_own():
    module, other = parsed(CALL), parsed(CALL)
    with pytest.raises(ValueError, match="the library has a function 'top' already"):
        module.functions.add(other.functions["top"])
    other.functions["top"].name = "again"
    version = module.version
    module.functions.add(other.functions["top"])
    assert module.version > version
    assert list(module.functions) == ["top", "again"]


# -- changes -----------------------------------------------------------------------------------------------------------


def test_use_lists_hold_through_every_kind_of_change():
    graph = parsed(FORWARD).graph
    assert kept_uses(graph) == uses(graph)
    assert graph["s"].value.users == {graph["y"]: 1}
    added = graph.add("a", "Add", [graph["y"].value, graph["y"].value], [graph["n"]])
    assert graph["y"].value.users == {added: 2}
    graph["s"].output(1).replace_by(graph["s"].value)
    assert [str(value) for value in graph["y"].inputs] == ["s", "s"]
    assert graph["y"].output() is graph["y"].value
    graph["y"].set_input(1, graph["x"].value)
    graph["n"].set_controls([graph["y"], graph["w"], graph["y"]])
    graph["w"].output(CONTROL).replace_by(graph["x"].output(CONTROL))
    assert graph["n"].controls == (graph["y"], graph["x"])
    assert kept_uses(graph) == uses(graph)
    graph.remove([added])
    assert kept_uses(graph) == uses(graph)
    assert not graph["y"].value.users
    assert list(graph.nodes) == ["x", "w", "s", "y", "n"]


def test_one_of_several_inputs_is_replaced():
    graph = parsed("x:A y:B n:AddN(x, x, x)").graph
    for number, texts in enumerate([["y", "x", "x"], ["y", "y", "x"], ["y", "y", "y"]]):
        graph["n"].set_input(number, graph["y"].value)
        assert list(map(str, graph["n"].inputs)) == texts
    assert repr(graph["y"].output(1)) == "<y:1>"
    assert repr(graph["y"]) == "<y:B>"


def test_results_follow_a_replaced_value():
    graph = parsed(FORWARD).graph
    graph["y"].value.replace_by(graph["s"].value)
    assert graph.results == {"loss:0": graph["s"].value, "train": graph["n"].output(CONTROL)}


def test_what_is_used_is_not_removed():
    graph = parsed(FORWARD).graph
    with pytest.raises(ValueError, match="node 's' is used by 'y'"):
        graph.remove([graph["s"]])
    with pytest.raises(ValueError, match="node 'n' is needed for the result 'train'"):
        graph.remove([graph["n"]])
    chain = parsed("a:A b:B(a)").graph
    with pytest.raises(ValueError, match="node 'a' is used by 'b'"):
        chain.remove([chain["a"]])
    graph.results.clear()
    graph.keep([graph["x"], graph["w"], graph["s"]])
    assert list(graph.nodes) == ["x", "w", "s"]
    assert kept_uses(graph) == uses(graph)


def test_names_are_unique():
    graph = parsed("x:A x_:B").graph
    assert graph.free_name("x") == "x__"
    assert graph.free_name("y") == "y"
    for change in (lambda: graph.add("x", "C"), lambda: graph.rename({graph["x_"]: "x"})):
        with pytest.raises(ValueError, match="the graph has a node 'x' already"):
            change()


def test_a_renamed_node_keeps_its_place_and_its_users_name_it():
    module = graphdef.read(message("a:A b:B(a, a:1) c:C(^b)"), known)
    module.graph.rename({module.graph["b"]: "new"})
    module.graph.rename({module.graph["a"]: "first"})
    assert text.show(graphdef.read(graphdef.write(module), known)) == "first:A\nnew:B(first, first:1)\nc:C(^new)\n"


def test_nodes_stand_behind_one_another_until_they_are_sorted():
    graph = parsed("b:A a:B").graph
    graph.add("a1", "C")
    graph.insert(Node(graph, "a0", "C"))
    assert [node.name for node in graph] == ["b", "a", "a1", "a0"]
    graph.sort()
    version = graph.version
    graph.sort()
    assert [node.name for node in graph] == ["a", "a0", "a1", "b"]
    assert graph.version == version
    graph.rename({graph["a"]: "y"})
    graph.sort()
    assert [node.name for node in graph] == ["a0", "a1", "b", "y"]


def test_protos_are_put_in_and_keep_their_bytes():
    graph = message("a:A b:B(a) c:C(b, ^b)")
    module = graphdef.read(graph, known)
    protos_of = protos.GraphDef()
    protos.nodes("b/new:Add(a:0,b/more) b/more:Const b:Mul(b/new,a:0)", protos_of.node)
    *added, whole = protos_of.node
    graphdef.insert(module.graph, added, origin=module.graph["b"])
    graphdef.become(module.graph["b"], whole)
    assert kept_uses(module.graph) == uses(module.graph)
    assert list(map(str, module.graph["b/new"].inputs)) == ["a", "b/more"]
    written = graphdef.write(module)
    assert [node.name for node in written.node] == ["a", "b", "c", "b/new", "b/more"]
    assert [written.node[k] for k in (3, 4, 1)] == list(protos_of.node)
    assert [module.graph[name].origin for name in ("a", "b/new", "b")] == ["", "b", ""]
    protos.nodes("d:D(gone)", protos_of.node)
    with pytest.raises(ConfigError, match="node 'd' reads 'gone', which is not in the graph"):
        graphdef.insert(module.graph, [protos_of.node[-1]])


def test_every_change_raises_the_version():
    graph = parsed(FORWARD).graph
    changes = [
        lambda: graph.add("new", "A"),
        lambda: graph["y"].set_input(0, graph["x"].value),
        lambda: graph["n"].set_op("B"),
        lambda: graph["n"].set_controls([]),
        lambda: graph["x"].set_device("d"),
        lambda: graph.remove([graph["new"]]),
        lambda: graph["x"].attrs.__setitem__("a", 1),
        lambda: graph["x"].attrs.__delitem__("a"),
        lambda: graph["y"].value.replace_by(graph["x"].value),
        lambda: graph.rename({graph["w"]: "v"}),
    ]
    for change in changes:
        version = graph.module.version
        change()
        assert graph.module.version > version


def test_a_changed_node_names_the_pass_and_where_it_came_from():
    graph = parsed(FORWARD).graph
    graph.module.author = "fold"
    added = graph.add("y/one", "A", origin=graph["y"])
    graph.module.author = "sink"
    again = graph.add("y/two", "A", origin=added)
    graph["n"].set_op("B")
    assert [(node.made_by, node.origin) for node in (added, again, graph["n"], graph["x"])] == [
        ("fold", "y"), ("sink", "y"), ("sink", ""), ("", ""),
    ]  # fmt: skip


def test_nodes_that_come_with_another_graph_def_name_the_pass_that_gave_it():
    module = parsed(FORWARD)
    module.author = "convert"
    graphdef.replace(module, message(FORWARD.replace("\nn:", "\nmore:NoOp\nn:")))
    by_pass = [(node.name, node.made_by, node.origin) for node in module.graph if node.made_by]
    assert by_pass == [("more", "convert", "")]
    again = parsed(FORWARD)
    graphdef.replace(again, message(FORWARD))
    assert not any(node.made_by for node in again.graph)


def test_comments_tell_where_nodes_come_from_and_are_read_over():
    module = parsed(FORWARD)
    plain = text.show(module)
    module.author = "fold"
    module.graph.add("y/one", "A", origin=module.graph["y"])
    module.graph["n"].set_controls([])
    lines = text.show(module, provenance=True).splitlines()
    assert [line.partition("  # ")[2] for line in lines if "#" in line] == [
        "by pass 'fold'", "by pass 'fold', for 'y'",
    ]  # fmt: skip
    assert plain == text.show(parsed(plain.replace("\n", "  # by pass 'fold', for 'x'\n", 2)))


def test_an_empty_attribute_stays_empty():
    value = protos.CLASSES["AttrValue"]()
    attributes.encode(None, value)
    assert attributes.decoded(value) is None
    attributes.encode((), value)
    assert value.WhichOneof("value") == "list"


def test_nothing_removed_is_no_change():
    graph = module_text.parse("x:Placeholder").graph
    version = graph.version
    graph.remove([])
    assert graph.version == version


def test_nodes_exchange_nothing_but_their_names():
    graph = module_text.parse("a:A()\nb:B(a)\nc:C(a, b, ^a)\n").graph
    graph.rename({graph["a"]: "one", graph["b"]: "two"})
    assert list(graph.nodes) == ["one", "two", "c"]
    assert [str(value) for value in graph["c"].inputs] == ["one", "two"]
    with pytest.raises(ValueError, match="a node 'c' already"):
        graph.rename({graph["one"]: "new", graph["two"]: "c"})
    assert list(graph.nodes) == ["one", "two", "c"]


def test_an_op_of_ours_is_known(monkeypatch):
    monkeypatch.setattr(tf_internals, "op_def", {}.get)
    assert definitions.registered("Ours") is None
    ours = Definition("Ours", (), (), {})
    monkeypatch.setitem(definitions.OURS, "Ours", ours)
    assert definitions.registered("Ours") is ours


def test_only_bodies_with_an_op_are_read():
    module = graphdef.read(graphdef.write(parsed(CALL), protos.GraphDef), known)
    assert list(module.graphs_with(lambda op: op == "Relu")) == []
    assert list(module.graphs_with(lambda op: op == "PartitionedCall")) == [module.graph]
    assert module.functions.read_ones() == []
    assert [graph.nodes["t"].op for graph in module.graphs_with(lambda op: op == "TopK") if "t" in graph] == ["TopK"]
    assert list(module.graphs_with(lambda op: op == "Identity")) == [module.graph, module.functions["top"]]
