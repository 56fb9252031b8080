"""The session entrance: ConfigProto and its NpuOptimizer entry, written by the user, prepared and read here.

Two kinds of change are kept apart. `prepare` makes those that the vendor's bridge makes on the user's own proto, so
that a script that looks at its config afterwards sees what it saw there. What our hook needs on top goes into a copy
only (`for_session`). Source: Ascend adapter of 2023-12 (r1.15); RewriterConfig of TensorFlow 1.15.5 and 2.15.1.
"""

import tensorflow.compat.v1 as tf

from npu_shim.options import table as options

OPTIMIZER = "NpuOptimizer"
# keys of an entry that TensorFlow is given: the session's number, and whether this process runs it
NUMBER, LOCAL = "_npu_shim_session", "_npu_shim_local"


def find_npu_optimizer(config):
    """Returns the first NpuOptimizer entry of a ConfigProto (a CustomGraphOptimizer), or None."""
    return next(iter(_entries(config)), None)


def _entries(config):
    """The NpuOptimizer entries of a ConfigProto. The original reads all of them: of an option, the last value holds."""
    return [entry for entry in config.graph_options.rewrite_options.custom_optimizers if entry.name == OPTIMIZER]


def join(config):
    """Makes one of several NpuOptimizer entries, in place: the first, with the values that hold; returns it or None.

    Scripts get several by adding an entry to what `npu_config_proto` returns, which has one already.
    """
    rewrite = config.graph_options.rewrite_options
    entries = _entries(config)
    for later in entries[1:]:
        for name, value in later.parameter_map.items():
            entries[0].parameter_map[name].CopyFrom(value)
    kept = [*entries[:1], *(entry for entry in rewrite.custom_optimizers if entry.name != OPTIMIZER)]
    del rewrite.custom_optimizers[:]
    rewrite.custom_optimizers.extend(kept)
    return find_npu_optimizer(config)


def prepare(config):
    """Changes a ConfigProto in place exactly as the bridge's patched Session does; once or twice is the same.

    An NpuOptimizer entry is added if there is none, and only then memory_optimization is turned off; always: soft
    placement on, placement log off, remapping off, global jit off.
    """
    rewrite = config.graph_options.rewrite_options
    if find_npu_optimizer(config) is None:
        rewrite.custom_optimizers.add().name = OPTIMIZER
        # the bridge writes the toggle's OFF; in this enum the same number is MANUAL, which does nothing unless asked
        rewrite.memory_optimization = rewrite.OFF
    config.allow_soft_placement = True
    config.log_device_placement = False
    rewrite.remapping = rewrite.OFF
    npu_graph_options(config.graph_options)


def npu_config_proto(config_proto=None):
    """Returns the same ConfigProto after `prepare`; anything else, None too, is replaced by a new one."""
    if not isinstance(config_proto, tf.ConfigProto):
        config_proto = tf.ConfigProto()
    prepare(config_proto)
    return config_proto


def npu_graph_options(graph_options=None):
    """Returns the same GraphOptions with TensorFlow's global jit off; anything else is replaced by new ones."""
    if not isinstance(graph_options, tf.GraphOptions):
        graph_options = tf.GraphOptions()
    npu_optimizer_options(graph_options.optimizer_options)
    return graph_options


def npu_optimizer_options(optimizer_options=None):
    """Returns the same OptimizerOptions with TensorFlow's global jit off; anything else is replaced by new ones."""
    if not isinstance(optimizer_options, tf.OptimizerOptions):
        optimizer_options = tf.OptimizerOptions()
    optimizer_options.global_jit_level = tf.OptimizerOptions.OFF
    return optimizer_options


def npu_run_config_init(run_config=None):
    """Returns the same tf.estimator.RunConfig with its session_config prepared; anything else is replaced by a new one.

    A RunConfig without session_config gets a new one. The RunConfig is changed in place, as in the bridge.
    """
    if not isinstance(run_config, tf.estimator.RunConfig):
        run_config = tf.estimator.RunConfig()
    run_config._session_config = npu_config_proto(run_config.session_config)
    return run_config


def for_session(config, values=None, number=0, local=True):
    """Returns a copy of a ConfigProto for TensorFlow itself; `config` is not changed.

    In the copy: one NpuOptimizer entry, the first, with the options that hold for this session, and the settings
    without which Grappler would skip our optimizer (all of them switched off, graphs of a few nodes, a time after which
    those that come last are left out, a graph that it is told to keep away from) or run it a second time for nothing.

    Args:
        config: tf.ConfigProto.
        values: dict of option values; those that the entry does not have are written into it.
        number: int, the session's own, see `session_number`.
        local: whether this process alone runs the session, see `is_local`.

    Raises:
        TypeError: as `write`.
    """
    copy = tf.ConfigProto()
    copy.CopyFrom(config)
    prepare(copy)
    rewrite = copy.graph_options.rewrite_options
    first = join(copy)
    write(first, {name: value for name, value in (values or {}).items() if name not in first.parameter_map})
    first.parameter_map[NUMBER].i = number
    first.parameter_map[LOCAL].b = local
    rewrite.meta_optimizer_iterations = rewrite.ONE
    rewrite.meta_optimizer_timeout_ms = -1
    rewrite.min_graph_nodes = -1
    rewrite.disable_meta_optimizer = False
    copy.graph_options.place_pruned_graph = False  # InteractiveSession asks for this
    return copy


def read(config):
    """Returns the options in a ConfigProto's NpuOptimizer entries: dict of name to Python value, see `options`.

    Without an entry it is empty. Unknown keys are logged; nothing is validated.
    """
    return options.read_values(fields(config))[0]


def parsed_entry(serialized):
    """Returns an NpuOptimizer entry (CustomGraphOptimizer) from its bytes."""
    entry = tf.ConfigProto().graph_options.rewrite_options.custom_optimizers.add()
    entry.ParseFromString(serialized)
    return entry


def read_values(entry):
    """Returns the options of an NpuOptimizer entry, as `read` does."""
    return options.read_values(_fields(entry.parameter_map))[0]


def session_number(entry):
    """Returns the number that `for_session` gave the entry's session, or None for an entry that it never saw."""
    return entry.parameter_map[NUMBER].i if NUMBER in entry.parameter_map else None


def is_local(entry):
    """Whether the process that made the entry's session runs all of it: others may not have the ops that are ours."""
    return entry.parameter_map[LOCAL].b if LOCAL in entry.parameter_map else False


def _fields(parameter_map):
    """Turns a parameter_map (map of AttrValue) into key -> (field that is set, its value)."""
    fields = {}
    for key, value in parameter_map.items():
        if key in (NUMBER, LOCAL):
            continue
        field = value.WhichOneof("value")
        fields[key] = (field, getattr(value, field) if field else None)
    return fields


def write(entry, values):
    """Writes option values (name to Python value) into an NpuOptimizer entry, each into the field of the table.

    Strings are encoded as UTF-8; an int is taken for a string option as its decimal, as numbers of bytes are given so.

    Raises:
        TypeError: a value that the field cannot hold, named with the option.
    """
    for name, value in values.items():
        field = options.options()[name].field
        target = entry.parameter_map[name]
        try:
            if field == "s":
                decimal = isinstance(value, int) and not isinstance(value, bool)
                target.s = tf.compat.as_bytes(str(value) if decimal else value)
            else:
                setattr(target, field, value)
        except (TypeError, ValueError):
            expected = {"s": "str", "b": "bool", "i": "int"}[field]
            message = "npu_shim: %s must be %s, got %s %r"
            raise TypeError(message % (name, expected, type(value).__name__, value)) from None


def with_values(config, values):
    """Returns a copy of a ConfigProto with option values in its one NpuOptimizer entry, added if there is none.

    Raises:
        TypeError: as `write`.
    """
    made = tf.ConfigProto()
    made.CopyFrom(config)
    entry = join(made)
    if entry is None:
        entry = made.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = OPTIMIZER
    write(entry, values)
    return made


def fields(config):
    """Returns what a ConfigProto's NpuOptimizer entries have: key to (proto field of its value, the value)."""
    return {key: field for entry in _entries(config) for key, field in _fields(entry.parameter_map).items()}
