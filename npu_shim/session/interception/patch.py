"""Sessions: the patches that the bridge's imports make, and the rewrite of the graphs that reach NpuOptimizer.

The way of a precision_mode: a user's ConfigProto -> `for_session` (config_proto.py) -> Grappler -> native/hook.cc ->
`_optimize` here -> session_options.py -> precision.resolve -> rewriting.rewrite_graph -> back through the hook into the
session. If a config names NpuOptimizer and a graph does not come this way, that is an error, or a warning where
TensorFlow or the script leave no choice: see `_on_missed_graph`, `_adopt_session` and `_watch_target`.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
import os
import sys
import traceback

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import cluster, ranks
from npu_shim.distributed.liveness import watch
from npu_shim.options import engine, passes
from npu_shim.options.entrances import config_proto
from npu_shim.options.ops import kept_gradients
from npu_shim.options.precision import speaks_of_ops
from npu_shim.options.rewriting import rewrite_graph
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, PlanError, VerifyError
from npu_shim.session import cards, clusters, devices, ending, lines, nan, pipeline
from npu_shim.session.interception import (
    call_scopes,
    enabling,
    interceptors,
    optimizer_faults,
    replaced_ops,
    session_options,
    unscaled,
)
from npu_shim.session.native import loader
from npu_shim.session.observers import attaching, ranks_apart, trace
from npu_shim.session.passes import arrivals, remapping
from npu_shim.session.trial import recording

LOG = logging.getLogger("npu_shim")
MAIN_GRAPH = "tf_graph"  # Grappler's name for the session's own graph; other items are bodies of its functions
UNPATCHED = (
    "the session's config names NpuOptimizer, and npu_shim.unpatch() has taken that back: the session runs as it was "
    "written, and its options are not even read; npu_shim.patch() brings NpuOptimizer back for sessions made after it"
)
NOT_HANDED_OVER = (
    "npu_shim: the session's config asks for NpuOptimizer, and TensorFlow did not hand it this graph: Grappler is off "
    "(see docs/troubleshooting.md)"
)
SEEN = "_npu_shim_seen"  # attribute of the nodes of a graph that was answered for, see native/hook.cc
_CODES = {"INVALID_ARGUMENT": tf.errors.INVALID_ARGUMENT, "INTERNAL": tf.errors.INTERNAL}
# what runs training steps in place of TensorFlow; it is in a layer above, and loaded on request
ENGINES = {"pjrt": "npu_shim.engine.sessions"}
_numbers = itertools.count(1)  # of sessions
_reached = set()  # numbers of the sessions of which a graph has reached the rewriter


def activate() -> None:
    """Activates NpuOptimizer for every session whose config names it, as any import of npu_bridge or hccl does.

    On an NPU each of these imports loads the plugin. A second call does nothing.
    """
    if _is_active():
        return
    base = interceptors.base_session()
    interceptors.restore_method(base, "__init__")  # `unpatch` has left one that only tells
    show_log()
    nan.keep()
    kept_gradients.follow()  # graphs may be imported with their scopes
    ranks.export()
    interceptors.install(_adopt_session)
    interceptors.replace(
        base, "__init__", functools.partial(_patch_init, _base_init)
    )  # both session classes go through it
    interceptors.replace(base, "_extend_graph", _patch_extend_graph)


def patch() -> None:
    """Routes the graphs of every new session through NpuOptimizer, as the import of npu_bridge.npu_init does.

    A second call does nothing. The caller's ConfigProto gets exactly what the original adds to it; what the hook needs
    besides goes into a copy.
    """
    activate()
    for cls in (tf.Session, tf.InteractiveSession):
        interceptors.replace(cls, "__init__", functools.partial(_patch_init, _user_init))


def unpatch() -> None:
    """Reverts `patch`, `activate` and `npu_shim.enable`.

    Sessions that are made from now on run as they are written; if a config names NpuOptimizer, one warning says so.

    Graphs of existing sessions are still rewritten, but no longer watched: an engine gives them the newest values of
    their variables, and they run their steps themselves from then on.
    """
    enabling.disable()
    base = interceptors.base_session()
    was_patched = interceptors.is_replaced(base, "__init__")
    interceptors.restore()
    if was_patched:  # the hook would not do: it may not be built, and Grappler hands it no small graph
        interceptors.replace(base, "__init__", functools.partial(_patch_init, _unpatched_init))


def _is_active():
    """Whether sessions whose config names NpuOptimizer go through it; `unpatch` leaves an `__init__` of its own."""
    return interceptors.is_replaced(interceptors.base_session(), "_extend_graph")


def is_patched() -> bool:
    """Whether the graphs of new sessions reach NpuOptimizer even if their config does not name it."""
    return interceptors.is_replaced(tf.Session, "__init__")


def show_log() -> None:
    """Lets our log lines reach standard error, unless the program has set up logging or NPU_SHIM_LOG is "off"."""
    if LOG.handlers or logging.getLogger().handlers or os.environ.get("NPU_SHIM_LOG") == "off":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


def _patch_init(init, original):
    """Returns a session class's new `__init__`: it calls `init` with the original one."""

    def patched(self, target="", graph=None, config=None):
        vars(self).setdefault("_session", None)  # TensorFlow's destructor reads it, also of a session that was refused
        init(self, original, target, graph, config)

    return patched


def _patch_extend_graph(original):
    def extend(self):  # whatever runs a session comes here first, in the thread in which the graph will be rewritten
        call_scopes.watch(self.graph)
        devices.tell_of_placement(self)
        return original(self)

    return extend


def _unpatched_init(self, original, target, graph, config):
    if isinstance(config, tf.ConfigProto) and config_proto.find_npu_optimizer(config) is not None:
        lines.once(UNPATCHED)
    original(self, target, graph, config=config)


def _user_init(self, original, target, graph, config):
    config = _default_config(self) if config is None else config
    if isinstance(config, tf.ConfigProto):  # TensorFlow has an error of its own for what is none
        config_proto.apply_bridge_settings(config)
    original(self, target, graph, config=config)


def _default_config(session):
    """Returns the ConfigProto that TensorFlow's own session makes where its script gives none."""
    if isinstance(session, tf.InteractiveSession):
        return tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=True))
    return tf_internals.default_config()


def _base_init(self, original, target, graph, config):
    config = config if cluster.is_of_rank(target) else _completed(config, graph)
    entry = config_proto.find_npu_optimizer(config) if isinstance(config, tf.ConfigProto) else None
    interceptors.known(self)
    in_session = True
    if entry is not None:
        loader.connect(_optimize, _on_missed_graph, clusters.log_clusters, clusters.MINIMUM_OPS)
        options, number = session_options.of_config(config), next(_numbers)
        session_options.keep(self, number, options)
        in_session = _engine(options.values) is None
        as_given = in_session and remapping.may_stay(options.values)
        apart, in_functions = call_scopes.any_in(graph)
        as_built = in_functions or speaks_of_ops(options.values)
        config = config_proto.for_session(config, options.values, number, not target, as_given, apart, as_built)
        if not in_session:
            _prepare_for_engine(config)
    cards.note(config, in_session)
    placed = config if target or not enabling.is_on() else devices.softened(config)
    if placed is not config:
        devices.keep(self)
    given, (target, config) = target, cluster.joined(target, placed, graph)
    original(self, target, graph, config=config)
    ending.attach(self)
    if target != given:
        seconds = None if entry is None else options.values.get("hccl_timeout")
        interceptors.innermost(self, functools.partial(cluster.watched, seconds))
        interceptors.before_partial(self, cluster.refuse_partial)
        watch.arrivals_by(arrivals.noted)
    if entry is not None:
        call_scopes.register_graph(number, self.graph)
        attaching.attach_shapes(self, options.values)
        _attach_engine(self, options.values)
        attaching.attach(self, options.values)
        recording.attach(self, options)
        if target:
            interceptors.watch(self, functools.partial(_watch_target, number))
    ranks_apart.attach(self)


def _completed(config, graph):
    """`enabling.completed`; its error is the session's."""
    try:
        return enabling.completed(config, graph)
    except ConfigError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from error


def _prepare_for_engine(config):
    """Changes the ConfigProto of a session with an engine, which feeds it tensors in the middle of its graph."""
    config.gpu_options.allow_growth = True  # else TensorFlow takes all of the memory that programs need
    options = config.graph_options.rewrite_options
    # it would read around a fed x + x or -(-x), TensorFlow 2.15.1 and 2.21.0: with the values of what is above it
    options.arithmetic_optimization = options.OFF
    # what waits for a copy of a fed tensor would wait for what computes it, and TensorFlow would run that
    options.dependency_optimization = options.OFF


def _attach_engine(session, values):
    """Hands a session to the engine that its options, or the environment, ask for; errors as `_engine`."""
    module = _engine(values)
    if module:
        importlib.import_module(module).attach(session)
    elif not engine.is_demanded(values):
        cards.tell_of_session()


def _engine(values):
    """Returns the module of the engine that options, or the environment, ask for; None for TensorFlow's own.

    Raises:
        tf.errors.InvalidArgumentError: an engine that is none, or that cannot be had here.
    """
    try:
        wanted = engine.wanted(values)
        if wanted in ENGINES:
            engine.require()
        return ENGINES.get(wanted)
    except ConfigError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from error


def _adopt_session(session):
    """Adopts a running session that was made while nothing was patched: its next graphs are rewritten."""
    config = session._config
    if config is None or config_proto.find_npu_optimizer(config) is None:
        return
    loader.connect(_optimize, _on_missed_graph, clusters.log_clusters, clusters.MINIMUM_OPS)
    options = session_options.of_config(config)
    attaching.attach_shapes(session, options.values)
    _attach_engine(session, options.values)
    attaching.attach(session, options.values)
    recording.attach(session, options)
    lines.once(
        "a session that asks for NpuOptimizer was made before npu_bridge was imported, or after npu_shim.unpatch(): "
        "graphs that it has run already stay as they were written; import npu_bridge, or call npu_shim.patch(), first"
    )


def _watch_target(number, session, once, *arguments):
    """Warns if the server of another process, on which a session runs, did not hand its graph to NpuOptimizer."""
    result = once(*arguments)
    if number not in _reached:
        lines.once(
            "the session's target %s did not hand its graph to NpuOptimizer: it runs as it was written; the process of "
            "the target must make a session with NpuOptimizer too" % tf.compat.as_str_any(session.sess_str)
        )
    return result


def _on_missed_graph(config, switch):
    """The hook's callback for a graph that `_optimize` never had, or that was dropped behind it.

    It returns if the graph may run as written; `switch` is as `loader.connect` says.
    """
    proto = tf.ConfigProto.FromString(config)
    number = config_proto.session_number(config_proto.find_npu_optimizer(proto))
    if number is None:
        lines.once(
            "a session that was made before npu_bridge was imported, or after npu_shim.unpatch(), does not hand its "
            "graph to NpuOptimizer: it runs as it was written"
            if _is_active()
            else UNPATCHED
        )
    elif tf.__version__.startswith("1."):
        # the only case that is known there; scripts that feed so run on the NPU, whose optimizer is no Grappler's
        lines.once(
            "TensorFlow %s does not hand NpuOptimizer a graph in which something other than a placeholder is fed: it "
            "runs as it was written; feed a tf.placeholder_with_default instead" % tf.__version__
        )
    else:
        again = optimizer_faults.switch_one_off(number, proto.graph_options.rewrite_options, switch)
        raise loader.HookError(tf.errors.FAILED_PRECONDITION, again or NOT_HANDED_OVER)


def _optimize(graph, config, item, feeds, fetches, preserved):
    """The hook's callback: a graph in bytes -> the rewritten graph in bytes, or None if it stays unchanged."""
    if item != MAIN_GRAPH:
        return None
    try:
        return _rewrite_bytes(graph, config, feeds, fetches, preserved)
    except (ConfigError, PlanError, VerifyError) as error:
        raise loader.HookError(_CODES[error.code], str(error)) from error
    except Exception as error:
        if optimizer_faults.is_broken(tf.GraphDef.FromString(graph)):
            return None  # TensorFlow drops it, and `_on_missed_graph` is asked
        # a fault of ours must reach the user as the session's error, not as a float32 run
        LOG.error("%s", traceback.format_exc())
        text = "npu_shim: internal error: %s: %s" % (type(error).__name__, error)
        raise loader.HookError(tf.errors.INTERNAL, text) from error


def _rewrite_bytes(graph, config, feeds, fetches, preserved):
    entry = config_proto.parsed_entry(config)
    number = config_proto.session_number(entry)
    if number is None and not _is_active():  # Grappler hands over larger graphs even so
        lines.once(UNPATCHED)
        return None
    _reached.add(number)
    options = session_options.of_entry(entry)
    chosen = options.precision()
    if options.values.get("use_off_line") is False:  # the graph is not for the device
        return None
    has_clusters = clusters.wanted(options.values)
    graph_def = tf.GraphDef.FromString(graph)
    if SEEN.encode() in graph and any(SEEN in node.attr for node in graph_def.node):
        return None  # a server whose own config names NpuOptimizer has it again from the session, which has decided
    call_scopes.mark(graph_def, number, config_proto.is_apart(entry))
    if chosen.policy.changes:
        unscaled.mark(graph_def, call_scopes.graph_of(number))
    # graph_def is what one run needs, and not always as it was built
    built = call_scopes.built(number) if speaks_of_ops(options.values) else {}
    if built:
        chosen = replaced_ops.as_asked(graph_def, {**call_scopes.built_in_functions(number), **built}, chosen)
    watching = passes.wanted(options.values)
    done = rewrite_graph(graph_def, feeds, [*fetches, *preserved], chosen, built=built, watching=watching)
    lines.say(done, chosen)
    trace.graph(done.plan, done.seconds)
    run = pipeline.Run(graph_def, feeds, [*fetches, *preserved], number, config_proto.is_local(entry), has_clusters)
    result = pipeline.applied(done.graph_def, run, passes.wanted(options.values))
    return None if result is graph_def else result.SerializeToString(deterministic=True)
