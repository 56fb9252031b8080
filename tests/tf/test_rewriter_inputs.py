"""What the rewriter is given: graphs that name no defaults, names that are not there, files of every kind."""

import functools
import json
import logging
import os
import re
from dataclasses import replace

import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.cli import main
from npu_shim.cli.graphs import graph_file
from npu_shim.rewriter.errors import LONGEST, ConfigError
from npu_shim.rewriter.graph.graph_view import Port
from npu_shim.rewriter.graphdef.apply import apply
from npu_shim.rewriter.graphdef.reading import read
from npu_shim.rewriter.inference.properties import Inference
from npu_shim.rewriter.inference.ranges import Ranges

MIX = {"precision_mode": "allow_mix_precision"}


def network():
    """Gradients over an open batch size, whose Sums ask for the shapes of most ops that shapes can be told of."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4, 1, 6], "x")
        w = tf.get_variable("w", [6, 6], use_resource=True)
        b = tf.get_variable("b", [6], use_resource=True)
        y = tf.matmul(tf.reshape(tf.squeeze(x, [2]), [-1, 6]), w) + b
        y = tf.nn.relu(tf.matmul(y, w, transpose_b=True) + tf.matmul(y, w))
        y = tf.concat(tf.split(y, 2, 1), 0)
        y = tf.transpose(tf.expand_dims(y, 0), [1, 0, 2]) * tf.fill([tf.shape(y)[0], 1, 3], 1e-9)
        loss = tf.reduce_mean(tf.gather(y, [0, 1]), name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    return graph


@functools.lru_cache(maxsize=1)
def _network_def():
    return network().as_graph_def()


def network_def():
    """A GraphDef of its own for who asks: building gradients takes longer than most of these tests."""
    return tf.GraphDef.FromString(_network_def().SerializeToString())


def stripped(graph):
    with graph.as_default():
        return tf.train.export_meta_graph(graph=graph, strip_default_attrs=True).graph_def


@pytest.mark.parametrize("mode", ["allow_mix_precision", "force_fp16", "force_fp32", "must_keep_origin_dtype"])
def test_a_graph_without_defaults_is_not_changed_and_planned_as_with_them(mode):
    """Reading an attribute of a NodeDef adds it."""
    full, given = network_def(), stripped(network())
    before = tf.GraphDef()
    before.CopyFrom(given)
    _, plan = npu_shim.rewrite(given, ["loss", "train"], ["x"], precision_mode=mode, profile="gpu")
    assert given == before
    assert given != full
    _, expected = npu_shim.rewrite(full, ["loss", "train"], ["x"], precision_mode=mode, profile="gpu")
    assert list(plan.decisions()) == list(expected.decisions())
    assert plan.warnings == expected.warnings


@pytest.mark.parametrize(
    ("feeds", "fetches", "message"),
    [
        (["x:1"], ["loss"], r"feed 'x:1': node 'x' \(op Placeholder\) has 1 output"),
        (["x"], ["loss:7"], r"fetch 'loss:7': node 'loss' \(op Mean\) has 1 output"),
        (["x"], ["train:0"], r"fetch 'train:0': node 'train' \(op NoOp\) has no output"),
        (["x"], ["split:2"], r"fetch 'split:2': node 'split' \(op Split\) has 2 outputs"),
        (["x"], ["los"], r"fetch 'los' is not in the graph \(did you mean 'loss'\?\)"),
    ],
)
def test_outputs_that_do_not_exist_are_errors(feeds, fetches, message):
    with pytest.raises(ConfigError, match=message):
        npu_shim.rewrite(network_def(), fetches, feeds, **MIX)


@pytest.mark.parametrize("fetches", [["loss:0"], ["train"], ["split:1", "^train"], ["loss"]])
def test_outputs_that_exist_are_none(fetches):
    npu_shim.rewrite(network_def(), fetches, ["x:0"], **MIX)


@pytest.mark.parametrize(
    ("form", "fetches", "feeds", "message"),
    [
        (lambda graph: graph, ["loss"], [], r"graph_def is a Graph, expected .*GraphDef: give graph.as_graph_def"),
        (lambda graph: tf.MetaGraphDef(), ["loss"], [], "is a MetaGraphDef, .*field graph_def"),
        (lambda graph: graph.as_graph_def(), "loss", [], "fetches is 'loss', expected a list of names"),
        (lambda graph: graph.as_graph_def(), ["loss"], ["x", 3], r"feeds is \['x', 3\], expected a list of names"),
        (lambda graph: graph.as_graph_def(), None, [], "fetches is None, expected a list of names"),
        (lambda graph: graph.as_graph_def(), ["loss"], None, "feeds is None, expected a list of names"),
        (lambda graph: graph.as_graph_def(), 3, [], "fetches is 3, expected a list of names"),
    ],
)
def test_what_is_no_graph_and_no_name_is_an_error(form, fetches, feeds, message):  # AttributeError
    with pytest.raises(ConfigError, match=message):
        npu_shim.rewrite(form(network()), fetches, feeds, **MIX)


def test_a_tensor_in_place_of_names_is_an_error():
    graph = network()
    loss = graph.get_tensor_by_name("loss:0")
    for fetches in (loss, [loss], loss.op):
        with pytest.raises(ConfigError, match=r"fetches is .*loss.*, expected a list of names"):
            npu_shim.rewrite(graph.as_graph_def(), fetches, **MIX)


def test_names_that_can_be_read_once_are_taken():
    graph_def = network_def()
    once, _ = npu_shim.rewrite(graph_def, iter(["loss"]), iter(["x"]), **MIX)
    assert once == npu_shim.rewrite(graph_def, ["loss"], ["x"], **MIX)[0]


@pytest.fixture
def logged(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    return lambda: [record.getMessage() for record in caplog.records if "customize" in record.getMessage()]


@pytest.fixture
def customized(tmp_path):
    path = tmp_path / "customized"
    path.write_text("MatMul_1::InputDtype:float32,float32\nMatMul_0::InputDtype:float32,float32\n")
    return str(path)


TYPO = "npu_shim: customize_dtypes: no node 'MatMul_0' in the graph (did you mean 'MatMul_1'?)"


def products():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        tf.matmul(x, x, name="a")
        tf.matmul(tf.matmul(x, x), tf.matmul(x, x), name="b")
    return graph


def test_a_session_calls_no_name_wrong_that_another_fetch_needs(patched, logged, customized):
    from npu_bridge.npu_init import RewriterConfig

    config = sessions.config(precision_mode="allow_mix_precision", customize_dtypes=customized)
    config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    with tf.Session(graph=products(), config=config) as session:
        session.run("a:0", {"x:0": [[1, 0], [0, 1]]})
        session.run("b:0", {"x:0": [[1, 0], [0, 1]]})
    assert logged() == [TYPO]


COUNTS = {  # line of customize_dtypes -> (what is reported, whether the product is in float32)
    "a::InputDtype:float32,float32,float32": ("'InputDtype:float32,float32,float32' has 3 .* 2 inputs;", True),
    "a::OutputDtype:float32,float32": ("'OutputDtype:float32,float32' has 2 dtypes, and 'a' .* has 1 output;", True),
    "a::InputDtype:,,float32": ("'InputDtype:,,float32' has 3 dtypes, and 'a' .* has 2 inputs;", False),
    "a::InputDtype:float32,float32,OutputDtype:float32": ("", True),
    "a::InputDtype:float32": ("", True),  # fewer are unspecified; one type attribute has them all
    "a::InputDtype:float32,,,OutputDtype:": ("", True),
    "OpType::MatMulV2:InputDtype:float32,float32,float32,OutputDtype:float32": ("", True),  # Ascend's has a bias
}


@pytest.mark.parametrize("line", COUNTS)
def test_more_dtypes_than_a_node_has_are_reported(line, tmp_path):
    path = tmp_path / "customized"
    path.write_text("# a comment\n%s\n" % line)
    _, plan = npu_shim.rewrite(products().as_graph_def(), ["a:0"], ["x:0"], customize_dtypes=str(path), **MIX)
    message, is_float32 = COUNTS[line]
    assert {d.becomes for d in plan.decisions() if d.node == "a"} == {1 if is_float32 else 19}
    assert len(plan.unmatched) == bool(message)
    for text in plan.unmatched:
        assert re.search(message, text), text
        assert re.match("customize_dtypes: file '.*customized', line 2: .* 'a' .op MatMul. has", text), text


def test_more_dtypes_than_a_node_has_are_told_in_a_session(patched, logged, tmp_path):
    path = tmp_path / "customized"
    path.write_text("b::InputDtype:float32,float32,float16\n")
    config = sessions.config(precision_mode="allow_mix_precision", customize_dtypes=str(path))
    with tf.Session(graph=products(), config=config) as session:
        session.run("b:0", {"x:0": [[1, 0], [0, 1]]})
    [text] = logged()
    assert "line 1: 'InputDtype:float32,float32,float16' has 3 dtypes, and 'b' (op MatMul) has 2 inputs; what" in text


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1 compiles no step as a whole")
def test_a_compiled_step_calls_no_name_wrong_that_it_does_not_need(logged, customized):
    npu_shim.compile_step(products(), ["a:0"], ["x"], customize_dtypes=customized, **MIX)
    assert logged() == [TYPO]


def saved(kind, folder):
    """Writes a network; returns what `plan` may be given for it."""
    graph = network()
    with graph.as_default(), tf.Session() as session:
        session.run(tf.global_variables_initializer())
        if kind.startswith("checkpoint"):
            prefix = tf.train.Saver().save(session, os.path.join(folder, "model"), 7)
            return {"checkpoint": prefix, "checkpoint folder": folder, "checkpoint index": prefix + ".index"}[kind]
        builder = tf.saved_model.Builder(os.path.join(folder, "saved"))
        signature = tf.saved_model.predict_signature_def({"x": graph.get_tensor_by_name("x:0")}, {
            "y": graph.get_tensor_by_name("loss:0")
        })  # fmt: skip
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save(as_text=kind.endswith("text"))
    return os.path.join(folder, "saved", *(["saved_model.pb"] if kind.endswith("file") else []))


@pytest.mark.parametrize("kind", ["checkpoint", "checkpoint folder", "checkpoint index"])
def test_a_checkpoint_is_read_with_its_graph(kind, tmp_path):
    graph_def, targets = graph_file.read(saved(kind, str(tmp_path)))
    assert {"x", "loss", "train"} <= {node.name for node in graph_def.node}
    assert targets == ["train"]


@pytest.mark.parametrize("kind", ["saved", "saved as text", "saved as file"])
def test_a_saved_model_is_read(kind, tmp_path, capsys):
    path = saved(kind, str(tmp_path))
    graph_def, targets = graph_file.read(path)
    assert {"x", "loss", "train"} <= {node.name for node in graph_def.node}
    assert targets in (["train"], ["loss:0"])
    assert main(["plan", path, "--fetches", "loss", "--precision-mode", "allow_mix_precision"]) == 0
    assert "float slots to float16" in capsys.readouterr().out


def test_a_folder_without_a_graph_says_what_was_looked_for(tmp_path):
    with pytest.raises(ConfigError, match=r"has no SavedModel \(saved_model\.pb or saved_model\.pbtxt\) and no check"):
        graph_file.read(str(tmp_path))
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    with pytest.raises(ConfigError, match="it has no graph"):
        graph_file.read(str(tmp_path))


LONG = "a" * 100000


def long_mixlist(folder):
    path = folder / "mix.json"
    path.write_text(json.dumps({"white-list": {"to-add": [LONG]}}))
    return {"modify_mixlist": str(path)}


@pytest.mark.parametrize(
    "told",
    [
        lambda folder, graph: npu_shim.rewrite(graph, ["loss"], **long_mixlist(folder), **MIX)[1].unmatched[0],
        lambda folder, graph: npu_shim.rewrite(graph, [LONG], **MIX),
        lambda folder, graph: npu_shim.rewrite(graph, ["loss"], precision_mode=LONG),
        lambda folder, graph: npu_shim.rewrite(graph, ["loss"], precision_mode="a b " * 30000),
        lambda folder, graph: npu_shim.rewrite(graph, ["loss"], modify_mixlist=LONG, **MIX),
        lambda folder, graph: npu_shim.rewrite(graph, ["loss"], profile=LONG, **MIX),
        lambda folder, graph: npu_shim.rewrite(graph, ["loss"], device=LONG, **MIX),
        lambda folder, graph: graph_file.read(LONG),
    ],
)
def test_no_message_repeats_a_long_text_whole(told, tmp_path):
    try:
        text = told(tmp_path, network_def())
    except ConfigError as error:
        text = str(error)
    assert "aaa" in text or "a b" in text
    assert len(text) < 3 * LONGEST


# ---- only what cannot be told is unknown


def test_a_fault_of_a_rule_is_no_unknown_shape():
    def broken(a):
        return {}["shape"]

    graph_def = network_def()
    view = read(graph_def)
    [position] = view.of_ops(["Relu"])
    inference = Inference(view, graph_def.node, {"shape": {"Relu": broken}})
    with pytest.raises(KeyError):
        inference.ask("shape", Port(position, 0))


def _wrong(build):
    """A graph that TensorFlow would refuse: sizes and axes are changed after it is built."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3, 4], "x")
        build(x, tf.constant([1, 0], name="n"), tf.constant(1, name="axis"))
    graph_def = graph.as_graph_def()
    for node in graph_def.node:
        if node.name in ("n", "axis"):
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([9, 7, 8] if node.name == "n" else 9))
    return graph_def


@pytest.mark.parametrize(
    "build",
    [
        lambda x, n, axis: tf.transpose(x, n),
        lambda x, n, axis: tf.concat([x, x], axis),
        lambda x, n, axis: tf.split(x, 2, axis),
        lambda x, n, axis: tf.expand_dims(x, axis),
        lambda x, n, axis: tf.reduce_sum(x, n),
        lambda x, n, axis: tf.range(axis, 10**9, axis),
        lambda x, n, axis: tf.shape(x)[axis],
        lambda x, n, axis: tf.matmul(x, x, transpose_b=True),
    ],
)
def test_a_graph_that_tensorflow_would_refuse_has_unknown_shapes(build):
    graph_def = _wrong(build)
    view = read(graph_def)
    told = Ranges(view, graph_def.node)
    for position, node in enumerate(view.nodes):
        for number in range(len(node.layout.outputs)):
            for what in ("shape", "value", "range"):
                told.ask(what, Port(position, number))
    npu_shim.rewrite(graph_def, [view.nodes[-1].name], ["x"], **MIX)


def test_what_a_cast_waits_for_is_written_in_the_order_of_its_names():
    """The plan counts nodes by position, and the same graph gives the same bytes whatever the order of its nodes."""
    graph_def = products().as_graph_def()
    _, plan = npu_shim.rewrite(graph_def, ["a"], ["x"], **MIX)
    position = plan.view.positions()
    written = []
    for names in (["x", "MatMul", "b"], ["b", "x", "MatMul"]):
        casts = tuple(cast._replace(before=tuple(position[name] for name in names)) for cast in plan.casts)
        applied, _ = apply(replace(plan, edits=plan.edits._replace(casts=casts)), graph_def)
        written += [node.input[1:] for node in applied.node if node.op == "Cast" and node.name == "x-0-to-float16"]
    assert [list(inputs) for inputs in written] == [["^MatMul", "^b", "^x"]] * 2
