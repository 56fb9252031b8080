"""MindSpore's amp levels as functions: they return configs or option values that select a level or a custom list.

    config = npu_shim.amp_level("O2", tf.ConfigProto())

What the levels are: see `amp`.
"""

import logging
from typing import Any, Dict, Iterable, List, Mapping, Optional

from npu_shim.options import precision
from npu_shim.options.amp import BLACK, LEVEL, LEVEL_OF, WHITE, levels, ops_of_level, ops_of_user
from npu_shim.rewriter.errors import ConfigError, nearest

LOG = logging.getLogger("npu_shim")
DTYPES = ("float16", "bfloat16")


def amp_level(level: str, config: Any = None, dtype: Any = "float16") -> Any:
    """Selects an amp level.

    Args:
        level: "O0", "O1", "O2", "O3" or "auto".
        config: None, a tf.compat.v1.ConfigProto or an NPURunConfig; it is not changed.
        dtype: the low precision, "float16" or "bfloat16", or a TensorFlow dtype of that name.

    Returns:
        A new config of the same kind that selects the level; without `config` the option values as a dict, for
        `npu_shim.rewrite(graph_def, fetches, **npu_shim.amp_level("O2"))`.

    Raises:
        ConfigError: no such level or dtype, or the config already has a precision mode, level or list.

    Example:
        >>> session = tf.compat.v1.Session(config=npu_shim.amp_level("O2", tf.compat.v1.ConfigProto()))
    """
    if level not in tuple(levels()):
        raise ConfigError("amp_level: '%s' is not one of %s%s" % (level, ", ".join(levels()), nearest(level, levels())))
    return _apply({LEVEL: level, "precision_mode": _precision_mode(level, dtype)}, config)


def custom_mixed_precision(
    config: Any = None,
    *,
    white_list: Optional[Iterable[str]] = None,
    black_list: Optional[Iterable[str]] = None,
    dtype: Any = "float16"
) -> Any:
    """Selects mixed precision by a custom list: exactly one of the two.

    Args:
        config: as in `amp_level`.
        white_list: op types to lower; all others stay float32, as in level O1.
        black_list: op types that stay float32 in place of level O2's black list; losses stay float32 in any case.
            Both take TensorFlow op types, or Ascend's names where TensorFlow has no op of that name.
        dtype: as in `amp_level`.

    Returns:
        As `amp_level`.

    Raises:
        ConfigError: both lists or none, an unknown op type, or what `amp_level` raises.

    Example:
        >>> white = npu_shim.get_white_list()
        >>> white.remove("Einsum")
        >>> config = npu_shim.custom_mixed_precision(tf.compat.v1.ConfigProto(), white_list=white)
    """
    given = {WHITE: white_list, BLACK: black_list}
    options = [option for option in given if given[option] is not None]
    if len(options) != 1:
        got = "both" if options else "none"
        raise ConfigError("custom_mixed_precision needs white_list or black_list, exactly one of them; got %s" % got)
    [option] = options
    word, listed = option[len("npu_shim_") :], given[option]
    if not isinstance(listed, (list, tuple, set, frozenset)) or not all(isinstance(name, str) for name in listed):
        raise ConfigError("custom_mixed_precision: %s must be a list of op types, got %r" % (word, listed))
    ops = ops_of_user(word, listed, precision.profile_table("ascend910"))
    forgotten = sorted(set(get_black_list()) - set(ops)) if option == BLACK else []
    if forgotten:
        text = "npu_shim: custom_mixed_precision: not in black_list, so they may be lowered: %s"
        LOG.warning(text, ", ".join(forgotten))
    return _apply({option: ",".join(listed), "precision_mode": _precision_mode(LEVEL_OF[option], dtype)}, config)


def get_white_list() -> List[str]:
    """Returns a new list of the TensorFlow op types that level O1 lowers, to edit for `custom_mixed_precision`."""
    return sorted(ops_of_level("O1", "white", precision.profile_table("ascend910")))


def get_black_list() -> List[str]:
    """Returns a new list of the TensorFlow op types that level O2 keeps in float32, besides losses and sums."""
    return sorted(ops_of_level("O2", "black", precision.profile_table("ascend910")))


def _precision_mode(level: str, dtype: Any) -> str:
    name = getattr(dtype, "name", dtype)
    modes: Mapping[str, str] = levels()[level]["precision_mode"]
    if name not in tuple(modes):
        raise ConfigError("dtype: %r is not one of %s%s" % (name, ", ".join(DTYPES), nearest(name, DTYPES)))
    return modes[name]


def _apply(values: Dict[str, str], config: Any) -> Any:
    """Returns a copy of the config with the values in its NpuOptimizer entry; without a config the values."""
    if config is None:
        return values
    import tensorflow.compat.v1 as tf

    from npu_shim.options.entrances import config_proto, run_config

    if isinstance(config, tf.ConfigProto):
        return config_proto.with_values(config, _require_no_clash(values, config_proto.read(config)))
    if not isinstance(config, run_config.NPURunConfig):
        expected = "a ConfigProto, an NPURunConfig or None"
        raise ConfigError("amp_level: config must be %s, got %s" % (expected, type(config).__name__))
    _require_no_clash(values, config_proto.read(run_config.session_config_of(config)))
    session_config = config.session_config or tf.ConfigProto()
    return config.replace(session_config=config_proto.with_values(session_config, values))


def _require_no_clash(values: Dict[str, str], already: Mapping[str, Any]) -> Dict[str, str]:
    taken = [name for name in ("precision_mode", "precision_mode_v2", LEVEL, WHITE, BLACK) if name in already]
    clash = [name for name in taken if already[name] != values.get(name)]
    if clash:
        words = ", ".join("%s '%s'" % (name, already[name]) for name in clash)
        raise ConfigError("the config has %s already; the level chooses the precision mode and the lists" % words)
    return values
