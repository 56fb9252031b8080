"""The session entrance: reads and completes a ConfigProto and its NpuOptimizer entry, which the user wrote.

Two kinds of change are kept apart. `apply_bridge_settings` makes the changes that the vendor's bridge makes to the
user's own proto: a script that inspects its config afterwards sees what it saw on the NPU. What our hook needs besides
goes into a copy only (`for_session`). Source: Ascend adapter of 2023-12 (r1.15); RewriterConfig of TensorFlow 1.15.5
and 2.15.1.
"""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.options import table
from npu_shim.rewriter import tf_internals

OPTIMIZER = "NpuOptimizer"
# keys that `for_session` adds to an entry: the session's number, and whether this process runs it
NUMBER, LOCAL = "_npu_shim_session", "_npu_shim_local"
APART = "_npu_shim_apart"  # another one: equal nodes stay apart
MERGING = ("common_subgraph_elimination", "arithmetic_optimization")  # what merges equal nodes; 1.15.5 has the second
ADDED = "_npu_shim_added"  # key of an entry that the script did not write, see `added`
# RewriterConfig's fields by which TensorFlow itself inserts casts: those of 2.15.1, 1.15.5 has the first
TENSORFLOWS_OWN = (
    "auto_mixed_precision", "auto_mixed_precision_mkl", "auto_mixed_precision_onednn_bfloat16",
    "auto_mixed_precision_cpu",
)  # fmt: skip


def find_npu_optimizer(config: Any) -> Any:
    """Returns the first NpuOptimizer entry of a ConfigProto (a CustomGraphOptimizer), or None."""
    return next(iter(_entries(config)), None)


def _entries(config: Any) -> list[Any]:
    """The NpuOptimizer entries of a ConfigProto. The original reads all of them; the last value of an option wins."""
    return [entry for entry in config.graph_options.rewrite_options.custom_optimizers if entry.name == OPTIMIZER]


def merge_entries(config: Any) -> Any:
    """Merges several NpuOptimizer entries into the first, in place, and returns it, or None if there is none.

    Scripts get several by adding an entry to the result of `npu_config_proto`, which already has one.
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


def apply_bridge_settings(config: tf.ConfigProto) -> None:
    """Changes a ConfigProto in place exactly as the bridge's patched Session does; idempotent.

    Soft placement is turned on; the placement log, remapping and global jit are turned off. If there is no NpuOptimizer
    entry, one is added and memory_optimization is turned off.
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


def npu_config_proto(config_proto: Any = None) -> tf.ConfigProto:
    """Returns the same ConfigProto after `apply_bridge_settings`; anything else, None too, is replaced by a new one."""
    if not isinstance(config_proto, tf.ConfigProto):
        config_proto = tf.ConfigProto()
    apply_bridge_settings(config_proto)
    return config_proto


def npu_graph_options(graph_options: Any = None) -> tf.GraphOptions:
    """Returns the same GraphOptions with TensorFlow's global jit off; anything else is replaced by new ones."""
    if not isinstance(graph_options, tf.GraphOptions):
        graph_options = tf.GraphOptions()
    npu_optimizer_options(graph_options.optimizer_options)
    return graph_options


def npu_optimizer_options(optimizer_options: Any = None) -> tf.OptimizerOptions:
    """Returns the same OptimizerOptions with TensorFlow's global jit off; anything else is replaced by new ones."""
    if not isinstance(optimizer_options, tf.OptimizerOptions):
        optimizer_options = tf.OptimizerOptions()
    optimizer_options.global_jit_level = tf.OptimizerOptions.OFF
    return optimizer_options


def npu_run_config_init(run_config: Any = None) -> Any:
    """Returns the same tf.estimator.RunConfig, with `npu_config_proto` applied to its session_config.

    Anything but a RunConfig is replaced by a new one. The RunConfig is changed in place, as in the bridge.
    """
    if not isinstance(run_config, tf.estimator.RunConfig):
        run_config = tf.estimator.RunConfig()
    run_config._session_config = npu_config_proto(run_config.session_config)
    return run_config


def for_session(
    config: tf.ConfigProto,
    values: Mapping[str, Any] | None = None,
    number: int = 0,
    local: bool = True,
    as_given: bool = False,
    apart: bool = False,
    as_built: bool = False,
) -> tf.ConfigProto:
    """Returns a copy of a ConfigProto for TensorFlow itself; `config` is not changed.

    The copy has one NpuOptimizer entry, the first, with this session's options. It also overrides the settings with
    which Grappler would skip our optimizer (Grappler disabled, a minimum number of nodes, a time limit, a graph that
    is excluded), or run it twice where it lowers something.

    Args:
        config: tf.ConfigProto.
        values: dict of option values; those that the entry does not have are written into it.
        number: int, the session's own, see `session_number`.
        local: whether this process alone runs the session, see `is_local`.
        as_given: whether TensorFlow's optimizers run as the config has them: in two rounds, unless it says otherwise,
            and with the remapper where the script did not write the entry.
        apart: whether TensorFlow must not merge equal nodes, see `is_apart`.
        as_built: whether TensorFlow must not replace ops by ops of other types, such as two Adds by an AddN.

    Raises:
        TypeError: as `write`.
    """
    copy = tf.ConfigProto()
    copy.CopyFrom(config)
    rewrite = copy.graph_options.rewrite_options
    if not is_added(find_npu_optimizer(config)):
        apply_bridge_settings(copy)
    elif not as_given:
        rewrite.remapping = rewrite.OFF  # it would hide products in fused ops that no list names
    for field in own_fields(config):
        setattr(rewrite, field, rewrite.OFF)  # no graph is lowered twice
    first = merge_entries(copy)
    write(first, {name: value for name, value in (values or {}).items() if name not in first.parameter_map})
    first.parameter_map[NUMBER].i = number
    first.parameter_map[LOCAL].b = local
    if apart:
        known = rewrite.DESCRIPTOR.fields_by_name
        setattr(rewrite, next(field for field in MERGING if field in known), rewrite.OFF)
        first.parameter_map[APART].b = True
    if as_built:
        rewrite.arithmetic_optimization = rewrite.OFF
    if not as_given:
        rewrite.meta_optimizer_iterations = rewrite.ONE
    rewrite.meta_optimizer_timeout_ms = -1
    rewrite.min_graph_nodes = -1
    rewrite.disable_meta_optimizer = False
    copy.graph_options.place_pruned_graph = False  # InteractiveSession asks for this
    return copy


def own_fields(config: tf.ConfigProto) -> tuple[str, ...]:
    """Returns the names of TENSORFLOWS_OWN that this TensorFlow has."""
    known = config.graph_options.rewrite_options.DESCRIPTOR.fields_by_name
    return tuple(field for field in TENSORFLOWS_OWN if field in known)


def added(config: tf.ConfigProto | None, values: Mapping[str, Any]) -> tf.ConfigProto:
    """Returns a copy of a ConfigProto without an NpuOptimizer entry, with one that the script did not write.

    A session with such an entry keeps what else its config says: device placement and its log, XLA's jit level.

    Raises:
        TypeError: as `write`.
    """
    copy = with_values(tf_internals.default_config() if config is None else config, values)
    find_npu_optimizer(copy).parameter_map[ADDED].b = True
    return copy


def is_added(entry: Any) -> bool:
    """Whether an NpuOptimizer entry, or None, is of `added`."""
    return entry is not None and ADDED in entry.parameter_map


def read(config: tf.ConfigProto) -> dict[str, Any]:
    """Returns the options in a ConfigProto's NpuOptimizer entries: dict of name to Python value, see `table`.

    Without an entry the dict is empty. Unknown keys are logged; nothing is validated.
    """
    return table.read_values(fields(config))[0]


def parsed_entry(serialized: bytes) -> Any:
    """Returns an NpuOptimizer entry (CustomGraphOptimizer) from its bytes."""
    entry = tf.ConfigProto().graph_options.rewrite_options.custom_optimizers.add()
    entry.ParseFromString(serialized)
    return entry


def read_values(entry: Any) -> dict[str, Any]:
    """Returns the options of an NpuOptimizer entry, as `read` does."""
    return table.read_values(_parse_fields(entry.parameter_map))[0]


def is_apart(entry: Any) -> bool:
    """Whether TensorFlow merges no equal nodes in the entry's session, as `for_session` was asked."""
    return APART in entry.parameter_map and bool(entry.parameter_map[APART].b)


def session_number(entry: Any) -> int | None:
    """Returns the number that `for_session` gave the entry's session, or None for an entry of another origin."""
    return entry.parameter_map[NUMBER].i if NUMBER in entry.parameter_map else None


def is_local(entry: Any) -> bool:
    """Whether the process that made the entry's session runs all of it: other processes may lack our own ops."""
    return entry.parameter_map[LOCAL].b if LOCAL in entry.parameter_map else False


def _parse_fields(parameter_map: Mapping[str, tf.AttrValue]) -> dict[str, tuple[str | None, Any]]:
    """Turns a parameter_map (map of AttrValue) into key -> (field that is set, its value)."""
    fields = {}
    for key, value in parameter_map.items():
        if key in (NUMBER, LOCAL, ADDED):
            continue
        field = value.WhichOneof("value")
        fields[key] = (field, getattr(value, field) if field else None)
    return fields


def write(entry: Any, values: Mapping[str, Any]) -> None:
    """Writes option values (name to Python value) into an NpuOptimizer entry, each into the field of the table.

    Strings are encoded as UTF-8. A string option also accepts an int and writes its decimal form: scripts give numbers
    of bytes so.

    Raises:
        TypeError: a value that the field cannot hold, named with the option.
    """
    for name, value in values.items():
        field = table.options()[name].field
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


def with_values(config: tf.ConfigProto, values: Mapping[str, Any]) -> tf.ConfigProto:
    """Returns a copy of a ConfigProto with option values in its single NpuOptimizer entry, added if there is none.

    Raises:
        TypeError: as `write`.
    """
    copy = tf.ConfigProto()
    copy.CopyFrom(config)
    entry = merge_entries(copy)
    if entry is None:
        entry = copy.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = OPTIMIZER
    write(entry, values)
    return copy


def fields(config: tf.ConfigProto) -> dict[str, tuple[str | None, Any]]:
    """Returns what a ConfigProto's NpuOptimizer entries have: key to (proto field of its value, the value)."""
    return {key: field for entry in _entries(config) for key, field in _parse_fields(entry.parameter_map).items()}
