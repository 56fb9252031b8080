"""A graph whose config names NpuOptimizer runs rewritten, or does not run, or says why it runs as it was written."""

import contextlib
import logging
import threading

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

import npu_shim
from npu_shim.options.entrances import plugin
from npu_shim.options.ops.scopes import keep_dtype_scope
from npu_shim.rewriter import collector
from npu_shim.session import lines
from npu_shim.session.interception import interceptors, optimizer_faults
from npu_shim.session.interception import patch as npu_session

pytestmark = pytest.mark.usefixtures("patched")
MIX = "allow_mix_precision"
ROW = [[1, 2, 3, 2049.0]]  # its sum is 2055 in float32, 2054 in float16


@pytest.fixture
def product():
    """(feed, product): a matrix product of what is fed with ones."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 4], "x")
        yield x, tf.matmul(x, tf.ones([4, 4]), name="y")[0, 0]


@pytest.fixture
def said(caplog):
    """The texts that are logged."""
    npu_session.LOG.propagate = True
    caplog.set_level(logging.INFO, logger="npu_shim")
    return lambda word: [r.getMessage() for r in caplog.records if word in r.getMessage()]


class TestInterrupts:
    @pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
    @pytest.mark.parametrize("entrance", ["run", "make_callable", "partial_run"])
    def test_what_interrupts_planning_reaches_the_caller_and_nothing_ran(self, product, monkeypatch, stop, entrance):
        x, y = product
        count = tf.get_variable("count", initializer=0, use_resource=True)
        with tf.control_dependencies([count.assign_add(1)]):
            counted = tf.identity(y)
        with tf.Session(config=sessions.config(precision_mode=MIX)) as session:
            session.run(count.initializer)

            def planned():
                if entrance == "run":
                    return session.run(counted, {x: ROW})
                if entrance == "make_callable":
                    return session.make_callable(counted, [x])(ROW)
                return session.partial_run(session.partial_run_setup([counted], [x]), counted, {x: ROW})

            def stopped(*_, **__):
                raise stop("now")

            with monkeypatch.context() as patch:
                patch.setattr(npu_session, "rewrite_graph", stopped)
                with pytest.raises(stop, match="now"):
                    planned()
            assert session.run(count) == 0
            assert planned() == 2054.0

    def test_an_exception_is_the_sessions_error(self, product, monkeypatch):
        x, y = product
        with tf.Session(config=sessions.config(precision_mode=MIX)) as session:
            monkeypatch.setattr(npu_session, "_rewrite_bytes", lambda *_: "no bytes")
            with pytest.raises(tf.errors.InternalError, match="was not rewritten"):
                session.run(y, {x: ROW})


SWITCHES = {
    "disable_meta_optimizer": lambda graph: setattr(graph.rewrite_options, "disable_meta_optimizer", True),
    "meta_optimizer_timeout_ms": lambda graph: setattr(graph.rewrite_options, "meta_optimizer_timeout_ms", 1),
    "min_graph_nodes": lambda graph: setattr(graph.rewrite_options, "min_graph_nodes", 10**6),
    "place_pruned_graph": lambda graph: setattr(graph, "place_pruned_graph", True),
    "opt_level": lambda graph: setattr(graph.optimizer_options, "opt_level", tf.OptimizerOptions.L0),
    "optimizers": lambda graph: graph.rewrite_options.optimizers.append("pruning"),
    "pruning": lambda graph: setattr(graph.rewrite_options, "disable_model_pruning", True),
}


class TestGrapplerSwitchedOff:
    @pytest.mark.parametrize("switch", SWITCHES)
    def test_the_rewriter_runs_all_the_same(self, product, switch):
        x, y = product
        config = sessions.config(precision_mode=MIX)
        SWITCHES[switch](config.graph_options)
        for _ in range(40 if switch == "meta_optimizer_timeout_ms" else 0):
            y = tf.tanh(tf.matmul(tf.fill([4, 4], y), tf.ones([4, 4])))[0, 0]
        with tf.Session(config=config) as session:
            ran = sessions.Ran(session, y, {x: ROW})
        assert set(ran.dtypes("MatMul").values()) == {"float16"}

    def test_a_graph_that_never_came_to_it_does_not_run(self, product, monkeypatch):
        x, y = product
        plain = npu_session.config_proto.for_session

        def off(*arguments):
            config = plain(*arguments)
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            return config

        monkeypatch.setattr(npu_session.config_proto, "for_session", off)
        monkeypatch.setattr(npu_session.tf, "__version__", "2.15.1")
        with tf.Session(config=sessions.config(precision_mode=MIX)) as session:
            assert session.run(x, {x: ROW}).tolist() == ROW  # nothing is computed, so nothing is lost
            with pytest.raises(tf.errors.FailedPreconditionError, match="did not hand it this graph"):
                session.run(y, {x: ROW})

    def test_feeding_what_is_no_placeholder(self, product, said):
        """TensorFlow 1.15 keeps such graphs from Grappler: they run as written there, with one warning."""
        x, _ = product
        middle = tf.multiply(x, 1.0, name="middle")
        z = tf.matmul(middle, tf.ones([4, 4]))[0, 0]
        with tf.Session(config=sessions.config(precision_mode=MIX)) as session:
            values = [session.run(z, {middle: ROW}) for _ in range(2)]
            session.run(z * 2.0, {middle: ROW})
        if tf.__version__.startswith("1."):
            assert len(said("feed a tf.placeholder_with_default")) == 1
        else:
            assert values == [2054.0, 2054.0]


def stacked(x):
    """A graph that TensorFlow 2.15's arithmetic optimizer breaks: it takes a Reshape away that another one reads."""
    w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
    a = tf.matmul(x, w)
    both = tf.stack([tf.reshape(a, [1, 2, 2]), tf.reshape(tf.matmul(a, w), [1, 2, 2])])[1]
    return tf.matmul(tf.reshape(both, [1, 4]), w, name="last")[0, 0] / 16.0


def options_of(session, x, y):
    options = config_pb2.CallableOptions(fetch=[y.name], feed=[x.name])
    return session._make_callable_from_options(options)(np.float32(ROW))[0]


def partial(session, x, y):
    return session.partial_run(session.partial_run_setup([y], [x]), y, {x: ROW})


WAYS = {
    "run": lambda session, x, y: session.run(y, {x: ROW}),
    "callable": lambda session, x, y: session.make_callable(y, [x])(np.float32(ROW)),
    "callable from options": options_of,
    "partial run": partial,
}


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 breaks no such graph")
class TestTensorFlowsOptimizerBreaksTheGraph:
    @pytest.mark.parametrize("way", WAYS)
    def test_the_session_goes_on_without_it(self, way, said):
        lines.once.cache_clear()
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [1, 4], "x")
            y = stacked(x)
            with sessions.started(sessions.config(precision_mode=MIX)) as session:
                assert WAYS[way](session, x, y) == 2054.0  # the first product's rows are 2055 in float32
                assert session.run(y * 2.0, {x: ROW}) == 4108.0  # another graph, which is whole at once
        [line] = said("breaks a graph of this session")
        assert "rewrite_options.arithmetic_optimization is off" in line

    def test_so_it_does_where_branches_have_other_shapes_than_their_result(self, said, control_flow_of_version_2):
        """tfg_optimizer refuses the gradient of a tf.cond in a function."""
        lines.once.cache_clear()
        with tf.Graph().as_default():
            x, y = tf.ones([3, 3]), tf.constant(2.0)
            sides = [lambda: (tf.gather(x, [2]) * y, y * np.ones(3, "f")), lambda: (tf.gather(x, [2]) * y, x[2:])]
            trained = tf.function(lambda: tf.gradients(tf.cond(tf.constant(True), *sides), [x, y]), autograph=False)()
            with tf.Session(config=sessions.config(precision_mode=MIX)) as session:
                assert session.run(trained[1]) == 6.0
        [line] = said("breaks a graph of this session")
        assert "rewrite_options.disable_tfg_optimizer is on" in line

    def test_every_optimizer_is_tried_and_the_one_is_named(self, said, monkeypatch):
        """One that is off already is none of them; one that a script's own config has switched on is."""
        given = rewriter_config_pb2.RewriterConfig(remapping="OFF", debug_stripper="ON", loop_optimization="AGGRESSIVE")
        switched, answers = {}, []
        monkeypatch.setattr(optimizer_faults, "_searches", {})
        while not answers or answers[-1]:
            answers.append(optimizer_faults.switch_one_off(7, given, lambda *change: switched.update([change])))
        tried = [answer.rpartition("without ")[2] for answer in answers[:-1]]
        assert tried == [*(name for name in optimizer_faults.OPTIMIZERS if name != "remapping"), "(all optimizers)"]
        assert switched == {name: getattr(given, name) for name in tried[:-1]}  # all is as it was

    def test_training_in_a_monitored_session(self, said):
        lines.once.cache_clear()
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [1, 4], "x")
            loss = tf.square(stacked(x) / 2054.0)
            train = tf.train.GradientDescentOptimizer(1e-3).minimize(loss, tf.train.get_or_create_global_step())
            with tf.train.MonitoredTrainingSession(config=sessions.config(precision_mode=MIX)) as session:
                losses = [session.run([loss, train], {x: ROW})[0] for _ in range(3)]
        assert losses[0] == 1.0
        assert losses[2] < losses[1] < losses[0]
        assert len(said("breaks a graph of this session")) == 1


def test_a_session_that_was_made_before_the_import(product, said):
    x, y = product
    npu_shim.unpatch()
    with tf.Session(config=sessions.config(precision_mode=MIX)) as session:
        npu_session.activate()
        z = y + 0.0
        values = [session.run(z, {x: ROW}) for _ in range(2)]
    assert values == [2054.0, 2054.0]
    assert len(said("made before npu_bridge was imported")) == 1


class TestUnpatched:
    """After `unpatch`, what a config asks of NpuOptimizer is not done, and one line says so."""

    @pytest.fixture
    def deep(self):
        """(feed, product) of a graph that is large enough for Grappler to hand it over."""
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None, 4])
            yield x, tf.reduce_max(tf.nn.relu(tf.matmul(tf.identity(x) + 0.0, tf.ones([4, 4])) * 1.0))

    @pytest.fixture(params=["product", "deep"])
    def graph(self, request):
        return request.getfixturevalue(request.param)

    @staticmethod
    def ran(graph, **options):
        x, y = graph
        with tf.Session(graph=y.graph, config=sessions.config(**options)) as session:
            return session.run(y, {x: ROW})

    @pytest.mark.parametrize("mode", [MIX, "force_fp16", "allow_mix_precison"])
    def test_a_config_that_names_it_runs_as_written_and_one_line_says_why(self, graph, said, mode):
        assert self.ran(graph, precision_mode=MIX) == 2054.0
        npu_shim.unpatch()
        npu_shim.unpatch()
        assert [self.ran(graph, precision_mode=mode) for _ in range(2)] == [2055.0, 2055.0]
        assert len(said("npu_shim.unpatch() has taken that back")) == 1
        assert not said("made before npu_bridge was imported")

    def test_patch_brings_it_back(self, graph, said):
        npu_shim.unpatch()
        npu_shim.patch()
        assert self.ran(graph, precision_mode=MIX) == 2054.0
        with pytest.raises(tf.errors.InvalidArgumentError, match="did you mean 'allow_mix_precision'"):
            self.ran(graph, precision_mode="allow_mix_precison")
        assert not said("npu_shim.unpatch()")

    def test_a_config_that_does_not_name_it_is_told_nothing(self, graph, said):
        npu_shim.unpatch()
        x, y = graph
        for config in (None, tf.ConfigProto()):
            with tf.Session(graph=y.graph, config=config) as session:
                assert session.run(y, {x: ROW}) == 2055.0
        assert not said("npu_shim")

    def test_a_config_that_is_none_has_tensorflows_own_error(self):
        npu_shim.unpatch()
        with pytest.raises(TypeError, match=r"must be a tf\.ConfigProto"):
            tf.Session(config={})

    def test_a_process_that_was_never_patched_stays_so(self):
        interceptors.restore()
        npu_shim.unpatch()
        assert not interceptors.is_replaced(interceptors.base_session(), "__init__")


def test_a_session_of_a_server_in_this_process(product, said):
    x, y = product
    server = tf.train.Server.create_local_server()
    with tf.Session(server.target, config=sessions.config(precision_mode=MIX)) as session:
        assert session.run(y, {x: ROW}) == 2054.0
    with tf.Session(server.target, config=sessions.config(precision_mode="nonsense")) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="nonsense"):
            session.run(y, {x: ROW})
    assert not said("the session's target")


def test_a_target_that_hands_nothing_over_is_said_once(product, said, monkeypatch):
    x, y = product

    class Never(set):
        def add(self, number):
            """As in a server of another process, whose optimizer knows nothing of this session."""

    monkeypatch.setattr(npu_session, "_reached", Never())
    server = tf.train.Server.create_local_server()
    with tf.Session(server.target, config=sessions.config(precision_mode=MIX)) as session:
        session.run(y, {x: ROW})
        session.run(x + 1.0, {x: ROW})
    [text] = said("did not hand its graph to NpuOptimizer")
    assert tf.compat.as_str(server.target) in text


def test_defaults_of_npu_resource_init_are_those_of_when_the_session_was_made(product):
    x, y = product
    plugin.npu_resource_init(precision_mode="must_keep_origin_dtype")
    try:
        session = tf.Session(config=sessions.config(npu_shim_profile="gpu"))
    finally:
        plugin.npu_resource_shutdown()
    with session:
        assert session.run(y, {x: ROW}) == 2055.0
    with tf.Session(config=sessions.config(npu_shim_profile="gpu")) as session:
        assert session.run(y, {x: ROW}) == 2054.0


def test_a_config_that_is_none(product):
    with pytest.raises(TypeError, match="config"):
        tf.Session(config={})


class TestThreads:
    def test_two_sessions_in_two_threads(self):
        """Each is rewritten by its own mode, at the same time, and Python's collector is on again afterwards."""
        modes = {MIX: "float16", "force_fp32": "float32"}
        dtype_of, start = {}, threading.Barrier(len(modes))

        def train(mode):
            with tf.Graph().as_default():
                x = tf.placeholder(tf.float32, [None, 4])
                y = x
                for _ in range(10):
                    y = tf.matmul(y, tf.random_uniform([4, 4]))
                with tf.Session(config=sessions.config(precision_mode=mode)) as session:
                    start.wait()
                    dtype_of[mode] = set(sessions.Ran(session, y, {x: ROW}).dtypes("MatMul").values())

        threads = [threading.Thread(target=train, args=(mode,)) for mode in modes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert dtype_of == {mode: {dtype} for mode, dtype in modes.items()}

    @pytest.mark.parametrize("was_on", [True, False])
    def test_the_collector_is_as_it_was_when_the_last_thread_has_finished(self, was_on, monkeypatch):
        calls = []
        monkeypatch.setattr(collector.gc, "isenabled", lambda: was_on)
        monkeypatch.setattr(collector.gc, "disable", lambda: calls.append("off"))
        monkeypatch.setattr(collector.gc, "enable", lambda: calls.append("on"))
        first, second = contextlib.ExitStack(), contextlib.ExitStack()
        first.enter_context(collector.without_collector())
        second.enter_context(collector.without_collector())
        first.close()
        assert calls == ["off"]
        second.close()
        assert calls == ["off", "on"][: 1 + was_on]


class TestLines:
    def run(self, build, **options):
        with tf.Graph().as_default():
            fetch = build()
            with sessions.started(config=sessions.config(**options)) as session:
                session.run(fetch)

    @staticmethod
    def small(dtype=tf.float32):
        v = tf.get_variable("v", [4, 4], dtype, tf.ones_initializer())
        return tf.matmul(v, v)

    @pytest.mark.parametrize("mode", ["force_fp32", "cube_fp16in_fp32out", MIX])
    def test_a_session_that_rewrites_says_so_once(self, said, mode):
        self.run(self.small, precision_mode=mode)
        assert len(said("%s: " % mode)) == 1

    def test_a_graph_that_is_low_by_hand(self, said):
        self.run(lambda: self.small(tf.float16), precision_mode=MIX)
        assert len(said("nothing to lower, 1 of 1 slots of white-listed ops are written in low precision")) == 1

    def test_a_graph_without_such_ops_is_silent(self, said):
        self.run(lambda: tf.get_variable("v", [4], initializer=tf.ones_initializer()) * 2.0, precision_mode=MIX)
        assert not said("")

    def test_what_the_user_keeps_is_no_warning(self, said):
        def kept():
            with keep_dtype_scope():
                return self.small()

        self.run(kept, precision_mode=MIX)
        assert not said("lowers nothing")
