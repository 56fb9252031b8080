"""What a user asks of single ops holds for sums, of which TensorFlow makes one AddN before the rewriter sees them."""

import contextlib
import json
import shutil

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim import configs
from npu_shim.options.ops.scopes import keep_dtype_scope, to_float

VALUES = np.float32([[1025, 3], [1, 2047]])  # exact in float16, sums of odd ones beyond 2048 are not
SCOPES = {"keep": keep_dtype_scope, "float32": lambda: to_float("float32")}
ADDS = "::InputDtype:float32,float32,OutputDtype:float32\n"


def in_variable():
    """A value of known shape: TensorFlow rewrites sums of these only."""
    return tf.Variable(VALUES, use_resource=True).read_value()


def summed(x, inner=contextlib.nullcontext, outer=contextlib.nullcontext):
    """The sum of the input and of three products, which are lowered."""
    low, other = (tf.matmul(x, tf.constant([[factor, 0.0], [0.0, factor]])) for factor in (1.0, 2.0))
    with inner():
        first = tf.add(low, other, name="first")
    with outer():
        return tf.add(tf.add(first, x, name="second"), low, name="third")


def run(build, **parameters):
    with tf.Graph().as_default():
        y = tf.reshape(build(in_variable()), [2, 2])  # what is fetched is not rewritten
        with sessions.started(config=sessions.config(precision_mode="allow_mix_precision", **parameters)) as session:
            return session.run(y)


EXACT = 5 * VALUES


def test_it_is_lowered_without(patched):
    assert not np.array_equal(run(summed), EXACT)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("place", ["all", "inner", "outer", "in a function"])
def test_a_scope(patched, scope, place):
    scopes = {"inner": SCOPES[scope]} if place == "inner" else {"outer": SCOPES[scope]}
    if place in ("all", "in a function"):
        scopes = {"inner": SCOPES[scope], "outer": SCOPES[scope]}

    def build(x):
        if place == "in a function":
            return tf.function(lambda x: tf.reshape(summed(x, **scopes), [2, 2]), autograph=False)(x)
        return summed(x, **scopes)

    np.testing.assert_array_equal(run(build), EXACT)


def test_a_scope_that_is_built_after_its_session(patched):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
        y = tf.reshape(summed(in_variable(), keep_dtype_scope, keep_dtype_scope), [2, 2])
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(y), EXACT)


@pytest.mark.parametrize("lines", ["first" + ADDS + "second" + ADDS + "third" + ADDS, "OpType::AddV2:" + ADDS[2:]])
def test_customize_dtypes(patched, tmp_path, lines):
    path = tmp_path / "dtypes.txt"
    path.write_text(lines.replace("AddV2", "Add") if tf.__version__.startswith("1.") else lines)
    np.testing.assert_array_equal(run(summed, customize_dtypes=str(path)), EXACT)


def test_modify_mixlist(patched, tmp_path):
    path = tmp_path / "mixlist.json"
    path.write_text(json.dumps({"black-list": {"to-add": ["Add", "AddV2"]}}))
    np.testing.assert_array_equal(run(summed, modify_mixlist=str(path)), EXACT)


def test_a_black_list_of_an_op(patched):
    np.testing.assert_array_equal(run(summed, npu_shim_black_list="Add,AddV2"), EXACT)


def divided(x):
    return tf.divide(tf.matmul(x, tf.constant([[1.0, 0.0], [0.0, 1.0]])), tf.constant(3.0), name="divided")


DIVISION = {
    "lists": lambda path: {"npu_shim_black_list": "RealDiv"},
    "a mixlist": lambda path: {"modify_mixlist": _file(path, json.dumps({"black-list": {"to-add": ["RealDiv"]}}))},
    "ops info": lambda path: {"npu_shim_ops_info_dir": _ops_info(path)},
    "its type": lambda path: {"customize_dtypes": _file(path, "OpType::RealDiv:" + ADDS[2:])},
    "its name": lambda path: {"customize_dtypes": _file(path, "divided" + ADDS)},
}


def _file(path, text):
    path.write_text(text)
    return str(path)


def _ops_info(path):
    """A folder with the shipped table, but for RealDiv on the black list."""
    shutil.copytree(configs.folder("ascend910"), str(path))
    rows = json.loads((path / "elementwise.json").read_text())
    rows["RealDiv"]["precision_reduce"] = {"flag": "false"}
    (path / "elementwise.json").write_text(json.dumps(rows))
    return str(path)


@pytest.mark.parametrize("way", DIVISION)
def test_a_division_by_a_constant_of_which_tensorflow_makes_a_product(patched, tmp_path, way):
    assert np.abs(run(divided) - VALUES / 3).max() > 0.1
    np.testing.assert_allclose(run(divided, **DIVISION[way](tmp_path / "asked")), VALUES / 3, rtol=1e-6)


def test_what_is_asked_of_products_is_not_asked_of_a_division_by_a_constant(patched, tmp_path):
    asked = {"customize_dtypes": _file(tmp_path / "asked", "OpType::Mul:" + ADDS[2:])}
    np.testing.assert_array_equal(run(divided, **asked), run(divided))


@pytest.mark.parametrize("lines", ["OpType::Mul:" + ADDS[2:], "times_one" + ADDS])
def test_a_product_of_which_tensorflow_makes_another_op(patched, tmp_path, lines):  # float32 was asked of a shape
    asked = sessions.config(precision_mode="allow_mix_precision", customize_dtypes=_file(tmp_path / "asked", lines))
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 2])
        y = tf.multiply(tf.matmul(x, x), tf.ones([2, 2]), name="times_one")  # BroadcastTo, where it is fetched
        with tf.Session(config=asked) as session:
            assert (session.run(y, {x: np.eye(2)}) == np.eye(2)).all()


def in_function(x):
    return tf.function(lambda x: tf.reshape(divided(x), [2, 2]), autograph=False)(x)


def in_nested_function(x):
    return tf.function(lambda x: tf.reshape(in_function(x), [2, 2]), autograph=False)(x)


def in_branch(x):
    """The other branch has a product of the same name."""
    return tf.cond(x[0, 0] > 0, lambda: divided(x), lambda: tf.multiply(x, 2.0, name="divided"))


def in_loop(x):
    return tf.while_loop(lambda k, _: k < 1, lambda k, _: (k + 1, divided(x)), [0, x])[1]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("way", [way for way in DIVISION if way != "its name"])
@pytest.mark.parametrize("build", [in_function, in_nested_function, in_branch, in_loop])
def test_a_division_by_a_constant_in_a_function(patched, tmp_path, way, build, version):
    with sessions.control_flow(version):
        np.testing.assert_allclose(run(build, **DIVISION[way](tmp_path / "asked")), VALUES / 3, rtol=1e-6)
