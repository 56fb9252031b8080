"""Sessions: the patches that the bridge's imports make, and what happens when a session hands a graph to NpuOptimizer.

The way of a precision_mode: a user's ConfigProto -> `for_session` (config_proto.py) -> Grappler -> native/hook.cc ->
`_optimize` here -> options.read_values and validate -> precision.resolve -> rewriting.rewrite_graph -> back through the
hook into the session.
"""

import functools
import logging
import os
import sys
import traceback

import tensorflow.compat.v1 as tf

from . import call_scopes, cluster, config_proto, kernel_names, observers, plugin, precision, trace, xla
from . import options as option_table
from .native import loader
from .rewriter import report
from .rewriter.errors import ConfigError, PlanError, VerifyError
from .rewriting import rewrite_graph

LOG = logging.getLogger("npu_shim")
MAIN_GRAPH = "tf_graph"  # Grappler's name for the session's own graph; other items are bodies of its functions
_CODES = {"INVALID_ARGUMENT": tf.errors.INVALID_ARGUMENT, "INTERNAL": tf.errors.INTERNAL}
_SHAPES = "_npu_shim_shapes"  # attribute of a session: xla.marking.Shapes, or None
_originals = {}  # (class, name of a method) -> its own method, while patched


def activate():
    """Brings NpuOptimizer to life for every session whose config names it, as any import of npu_bridge does.

    On an NPU each of these imports loads the plugin. A second call does nothing.
    """
    base = tf.Session.__mro__[1]  # BaseSession: the one door that both session classes go through
    if (base, "__init__") in _originals:
        return
    show_log()
    _replace_init(base, _base_init)
    _replace_run(base)
    _replace_extend(base)


def patch():
    """Makes every session from now on run through NpuOptimizer, as the import of npu_bridge.npu_init does.

    A second call does nothing. The caller's ConfigProto gets what the original adds to it, and no more; what the hook
    needs on top goes into a copy.
    """
    activate()
    if not is_patched():
        for cls in (tf.Session, tf.InteractiveSession):
            _replace_init(cls, _user_init)


def unpatch():
    """Takes `patch` and `activate` back; sessions that exist keep what they have."""
    while _originals:
        (cls, method), original = _originals.popitem()
        setattr(cls, method, original)


def is_patched():
    """Whether new sessions run through NpuOptimizer even if their config does not name it."""
    return (tf.Session, "__init__") in _originals


def show_log():
    """Lets our log lines reach standard error, unless the program has set up logging or NPU_SHIM_LOG is "off"."""
    if LOG.handlers or logging.getLogger().handlers or os.environ.get("NPU_SHIM_LOG") == "off":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


def _replace_init(cls, init):
    original = _originals[cls, "__init__"] = cls.__init__

    @functools.wraps(original)
    def patched(self, target="", graph=None, config=None):
        init(self, original, target, graph, config)

    cls.__init__ = patched


def _replace_run(base):
    original = _originals[base, "run"] = base.run

    @functools.wraps(original)
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        shapes = vars(self).get(_SHAPES)
        if shapes is not None:
            shapes.see(feed_dict)
        return original(self, fetches, feed_dict, options, run_metadata)

    base.run = run


def _replace_extend(base):
    original = _originals[base, "_extend_graph"] = base._extend_graph

    @functools.wraps(original)
    def extend(self):  # whatever runs a session comes here first, in the thread in which the graph will be rewritten
        call_scopes.watch(self.graph)
        return original(self)

    base._extend_graph = extend


def _user_init(self, original, target, graph, config):
    config = tf.ConfigProto() if config is None else config
    config_proto.prepare(config)
    original(self, target, graph, config=config)


def _base_init(self, original, target, graph, config):
    if config is not None and config_proto.find_npu_optimizer(config) is not None:
        loader.connect(_optimize, xla.log_clusters, xla.MINIMUM_OPS)
        setattr(self, _SHAPES, xla.prepare(config_proto.read(config)))
        config = config_proto.for_session(config)
        # InteractiveSession asks for this; it would keep Grappler, and with it the rewriter, away from the graph
        config.graph_options.place_pruned_graph = False
    target, config = cluster.joined(target, config)
    original(self, target, graph, config=config)
    if config is not None and config_proto.find_npu_optimizer(config) is not None:
        observers.attach(self, config_proto.find_npu_optimizer(config))


def _optimize(graph, config, item, feeds, fetches, preserved):
    """The hook's callback: a graph in bytes -> the rewritten graph in bytes, or None where it stays as it is."""
    if item != MAIN_GRAPH:
        return None
    try:
        return _rewrite_bytes(graph, config, feeds, fetches, preserved)
    except (ConfigError, PlanError, VerifyError) as error:
        raise loader.HookError(_CODES[error.code], str(error)) from error
    except Exception as error:  # a fault of ours must reach the user as the session's error, not as a float32 run
        LOG.error("%s", traceback.format_exc())
        text = "npu_shim: internal error: %s: %s" % (type(error).__name__, error)
        raise loader.HookError(tf.errors.INTERNAL, text) from error


def _rewrite_bytes(graph, config, feeds, fetches, preserved):
    values = plugin.with_defaults(config_proto.read_entry(config))
    option_table.validate(values)
    chosen = precision.resolve(values)
    if values.get("use_off_line") is False:  # the graph is not for the device
        return None
    marks = xla.wanted(values)
    graph_def = tf.GraphDef.FromString(graph)
    call_scopes.mark(graph_def)
    elsewhere = () if chosen.customized is None else call_scopes.names()  # graph_def is what one run needs
    done = rewrite_graph(graph_def, feeds, [*fetches, *preserved], chosen, elsewhere=elsewhere)
    _log(done, chosen)
    trace.graph(done.plan, done.seconds)
    if done.graph_def is not graph_def:
        kernel_names.distinct(graph_def, done.graph_def)
    result = xla.mark(done.graph_def, [*feeds, *fetches, *preserved]) if marks else done.graph_def
    return None if result is graph_def else result.SerializeToString(deterministic=True)


def _log(done, chosen):
    counts = report.summary(done.plan, done.seconds)
    for text in done.plan.warnings:
        _log_once(text)
    if counts["lowered"]:  # the graph that trains, not the one that initializes variables
        for text in done.plan.unmatched:
            _log_once(text)
        LOG.info("npu_shim: %s", report.one_line(done.plan, counts))
        if os.environ.get("NPU_SHIM_LOG") == "plan":
            for line in (*chosen.matched, *report.lowered_lines(done.plan)):
                LOG.info("npu_shim: %s", line)


@functools.lru_cache(maxsize=None)
def _log_once(text):
    LOG.warning("npu_shim: %s", text)
