"""The session entrance: ConfigProto and its NpuOptimizer entry, written by the user, prepared and read here.

Two kinds of change are kept apart. `prepare` makes those that the vendor's bridge makes on the user's own proto, so
that a script that looks at its config afterwards sees what it saw there. What our hook needs on top goes into a copy
only (`for_session`). Source: Ascend adapter of 2023-12 (r1.15); RewriterConfig of TensorFlow 1.15.5 and 2.15.1.
"""

import tensorflow.compat.v1 as tf

from npu_shim import options

OPTIMIZER = "NpuOptimizer"


def find_npu_optimizer(config):
    """Returns the first NpuOptimizer entry of a ConfigProto (a CustomGraphOptimizer), or None."""
    for entry in config.graph_options.rewrite_options.custom_optimizers:
        if entry.name == OPTIMIZER:
            return entry
    return None


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


def for_session(config):
    """Returns a copy of a ConfigProto for TensorFlow itself; `config` is not changed.

    In the copy: the first NpuOptimizer entry only, and the three settings without which Grappler would skip our
    optimizer (all of them switched off, graphs of a few nodes) or run it a second time for nothing.
    """
    copy = tf.ConfigProto()
    copy.CopyFrom(config)
    prepare(copy)
    rewrite = copy.graph_options.rewrite_options
    others = [entry for entry in rewrite.custom_optimizers if entry.name != OPTIMIZER]
    kept = [find_npu_optimizer(copy), *others]
    del rewrite.custom_optimizers[:]
    rewrite.custom_optimizers.extend(kept)
    rewrite.meta_optimizer_iterations = rewrite.ONE
    rewrite.min_graph_nodes = -1
    rewrite.disable_meta_optimizer = False
    return copy


def read(config):
    """Returns the options in a ConfigProto's NpuOptimizer entry: dict of name to Python value, see `options`.

    Without an entry it is empty. Unknown keys are logged, wrong fields read as zero; nothing is validated.
    """
    entry = find_npu_optimizer(config)
    return options.read_values(_fields(entry.parameter_map))[0] if entry is not None else {}


def read_entry(serialized):
    """Returns the options of a serialized NpuOptimizer entry (bytes of a CustomGraphOptimizer), as `read` does."""
    entry = tf.ConfigProto().graph_options.rewrite_options.custom_optimizers.add()
    entry.ParseFromString(serialized)
    return options.read_values(_fields(entry.parameter_map))[0]


def _fields(parameter_map):
    """Turns a parameter_map (map of AttrValue) into key -> (field that is set, its value)."""
    fields = {}
    for key, value in parameter_map.items():
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
    """Returns a copy of a ConfigProto with option values in its first NpuOptimizer entry, added if there is none.

    Raises:
        TypeError: as `write`.
    """
    made = tf.ConfigProto()
    made.CopyFrom(config)
    entry = find_npu_optimizer(made)
    if entry is None:
        entry = made.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = OPTIMIZER
    write(entry, values)
    return made


def fields(config):
    """Returns the parameter_map of a ConfigProto's NpuOptimizer entry: key to (proto field that is set, its value)."""
    entry = find_npu_optimizer(config)
    return {} if entry is None else _fields(entry.parameter_map)
