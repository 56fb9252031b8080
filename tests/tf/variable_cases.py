"""What a variable of TensorFlow 1 can do, case by case, for any TensorFlow; run as a script it prints the answers.

    npu-shim run tests/tf/variable_cases.py

../golden/variables_1.15.5.json holds the answers of TensorFlow 1.15.5 without npu_bridge, as `python
tests/tf/variable_cases.py --plain` prints them. A value is an answer, and so is the builtin class of an exception.
"""

import json
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

if "--plain" not in sys.argv:
    import npu_bridge.npu_init  # noqa: F401

ROW = [[1.0, 1.0]]


def rows():
    """One row to be written to the first row of v."""
    return tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))


def initialized(session, variable):
    session.run(variable.initializer)
    return variable


def named(v, name):
    """The tensor of a name behind the variable's own, times one."""
    return v.graph.get_tensor_by_name(v.op.name + name) * 1.0


def fed_learning_rate(v, session, by_name):
    rate = initialized(session, tf.Variable(0.5, trainable=False, name="lr"))
    return session.run(rate * 2.0, {"lr:0" if by_name else rate: 0.0})


def fed_choice(v, session):
    training = initialized(session, tf.Variable(True, trainable=False))
    chosen = tf.cond(training, lambda: tf.constant(1), lambda: tf.constant(2))
    return [session.run(chosen), session.run(chosen, {training: False})]


def fed_before_an_assignment(v, session):
    after = tf.assign_add(v, tf.ones([3, 2]))
    with tf.control_dependencies([after]):
        total = tf.reduce_sum(tf.identity(v) * 1.0)
    return session.run(total, {v.value(): np.zeros([3, 2])}), session.run(v)


def counter(session):
    return initialized(session, tf.Variable(3))


def average(v, session):
    moving = tf.train.ExponentialMovingAverage(0.5)
    apply = moving.apply([v])
    session.run(tf.global_variables_initializer())
    session.run(apply)
    return moving.average(v) if moving.average(v) else v


def partitioned(v, session):
    whole = tf.get_variable("p", [4, 2], partitioner=tf.fixed_size_partitioner(2), initializer=tf.ones_initializer())
    session.run(tf.global_variables_initializer())
    return whole.as_tensor()


def saved(v, session):
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Saver([v]).save(session, os.path.join(folder, "model"))
        return tf.train.list_variables(path)


def loop(v, session):
    return tf.while_loop(lambda i, _: i < 2, lambda i, total: (i + 1, total + v), [0, v])


def loaded(v, session):
    v.load(np.ones([3, 2]), session)
    return v


def written_slice(v, session):
    session.run(v[0].assign([5.0, 5.0]))
    return v


CASES = {
    # what it starts with
    "initialized_value": lambda v, s: v.initialized_value(),
    "initial value of another": lambda v, s: tf.Variable(v.initialized_value() + 1.0).initial_value,
    "get_variable from it": lambda v, s: initialized(s, tf.get_variable("w", initializer=v.initialized_value())),
    "a variable of a variable": lambda v, s: initialized(s, tf.Variable(v)),
    "initial_value": lambda v, s: v.initial_value,
    "is_variable_initialized": lambda v, s: tf.is_variable_initialized(v),
    "report_uninitialized_variables": lambda v, s: tf.report_uninitialized_variables(),
    "assert_variables_initialized": lambda v, s: tf.group(tf.assert_variables_initialized([v])),
    # feeding
    "fed": lambda v, s: fed_learning_rate(v, s, by_name=False),
    "fed by name": lambda v, s: fed_learning_rate(v, s, by_name=True),
    "fed choice": fed_choice,
    "fed value beside an update": fed_before_an_assignment,
    # what it is
    "truth": lambda v, s: bool(v),
    "length": lambda v, s: len(v),
    "iteration": lambda v, s: list(v),
    "key of a dict": lambda v, s: len({v: 1}),
    "member of a list": lambda v, s: v in [1, v],
    "dtype": lambda v, s: [v.dtype == tf.float32, v.dtype.base_dtype == tf.float32, v.dtype.is_floating, v.dtype.name],
    "shape": lambda v, s: [v.get_shape().as_list(), v.shape.as_list(), tf.zeros(v.shape).shape.as_list()],
    "names": lambda v, s: [v.name, v.op.name, v.op.type, v.device],
    "class": lambda v, s: type(v).__name__,
    "set_shape": lambda v, s: v.set_shape([3, 2]),
    "ref": lambda v, s: v._ref(),
    "to_proto": lambda v, s: tf.Variable.from_proto(v.to_proto()),
    "eval": lambda v, s: v.eval(s),
    # tensors behind its names
    "tensor by name": lambda v, s: named(v, ":0"),
    "fetched by name": lambda v, s: s.run([v.name, {"in": (v.op.name + ":0",)}]),
    "fetched by its operation": lambda v, s: s.run(v.op),
    "read by name": lambda v, s: named(v, "/read:0"),
    "outputs of its operation": lambda v, s: v.op.outputs[0] * 1.0,
    "operation by name": lambda v, s: v.graph.get_operation_by_name("v").outputs[0] * 1.0,
    "make_callable": lambda v, s: s.make_callable(v.name)(),
    "operations of the graph": lambda v, s: [(op.name, op.type) for op in v.graph.get_operations()],
    # writing
    "assign": lambda v, s: tf.assign(v, tf.ones([3, 2]), use_locking=True),
    "assign another shape": lambda v, s: tf.assign(v, tf.ones([2, 2]), validate_shape=False),
    "assign a wrong shape": lambda v, s: tf.assign(v, tf.ones([2, 2])),
    "assign_sub": lambda v, s: v.assign_sub(tf.ones([3, 2])),
    "load": loaded,
    "count_up_to": lambda v, s: counter(s).count_up_to(5),
    "tf.count_up_to": lambda v, s: tf.count_up_to(counter(s), 5),
    "scatter_add": lambda v, s: tf.scatter_add(v, [0], ROW),
    "scatter_update": lambda v, s: tf.scatter_update(v, [0], ROW),
    "scatter_mul": lambda v, s: tf.scatter_mul(v, [0], [[3.0, 3.0]]),
    "scatter_min": lambda v, s: tf.scatter_min(v, [0], [[-1.0, 1.0]]),
    "scatter_nd_update": lambda v, s: tf.scatter_nd_update(v, [[0]], ROW),
    "scatter_nd_add": lambda v, s: tf.scatter_nd_add(v, [[0]], ROW),
    "scatter_nd_sub": lambda v, s: tf.scatter_nd_sub(v, [[0]], ROW),
    "method scatter_sub": lambda v, s: v.scatter_sub(rows()),
    "method scatter_update": lambda v, s: v.scatter_update(rows()),
    "method scatter_nd_add": lambda v, s: v.scatter_nd_add([[0]], ROW),
    "method batch_scatter_update": lambda v, s: v.batch_scatter_update(rows()),
    "batch_scatter_update": lambda v, s: tf.batch_scatter_update(v, tf.constant([[0], [0], [1]]), tf.ones([3, 1])),
    "a row": written_slice,
    "a column": lambda v, s: v[:, 1].assign([5.0, 5.0, 5.0]),
    # reading
    "convert_to_tensor": lambda v, s: tf.convert_to_tensor(v),
    "identity": lambda v, s: tf.identity(v),
    "zeros_like": lambda v, s: tf.zeros_like(v),
    "embedding_lookup": lambda v, s: tf.nn.embedding_lookup(v, [0]),
    "embedding_lookup in two": lambda v, s: tf.nn.embedding_lookup([v, v], [0, 1]),
    "py_func": lambda v, s: tf.py_func(lambda a: a.sum(), [v], tf.float32),
    "add_n": lambda v, s: tf.add_n([v, v]),
    "map_fn": lambda v, s: tf.map_fn(lambda row: row * 2.0, v),
    "l2_loss": lambda v, s: tf.nn.l2_loss(v),
    "tuple": lambda v, s: tf.tuple([v, v * 1.0]),
    "group": lambda v, s: tf.group(v),
    "cond": lambda v, s: tf.cond(tf.constant(True), lambda: v, lambda: v * 2.0),
    "cond on a bool": lambda v, s: tf.cond(True, lambda: v, lambda: v * 2.0),
    "case": lambda v, s: tf.case([(tf.constant(True), lambda: v)], default=lambda: v + 1.0),
    "while_loop": loop,
    "partitioned": partitioned,
    "moving average": average,
    "saved": saved,
    # gradients
    "gradient": lambda v, s: tf.gradients(v * v, [v]),
    "gradient of the read": lambda v, s: tf.gradients(v * v, [v.value()]),
    "second derivatives": lambda v, s: tf.hessians(tf.reduce_sum(v**3), v),
    "trained": lambda v, s: s.run([tf.train.GradientDescentOptimizer(0.5).minimize(v * v), v])[0] or s.run(v),
}


def answer(case):
    """The answer of a case, as JSON can hold it: of v, a variable of shape [3, 2] full of twos, initialized."""
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", [3, 2], initializer=tf.constant_initializer(2.0))
        session.run(v.initializer)
        try:
            output = CASES[case](v, session)
            return plain(run_tensors(output, session))
        except Exception as error:  # which one is the answer
            return "raises " + next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")


def run_tensors(output, session):
    if isinstance(output, (list, tuple)):
        return [run_tensors(part, session) for part in output]
    return session.run(output) if isinstance(output, (tf.Tensor, tf.Operation, tf.Variable)) else output


def plain(value):
    """Numbers, strings, lists."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    print("{\n%s\n}" % ",\n".join("%s: %s" % (json.dumps(case), json.dumps(answer(case))) for case in CASES))
