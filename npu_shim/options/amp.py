"""MindSpore's amp levels O0, O1, O2, O3 and auto, in the terms of Ascend's precision modes and lists.

    config = npu_shim.amp_level("O2", tf.ConfigProto())

The levels are rows of `configs/amp_levels.json`. What a level means here and there (MindSpore 2.9.0):

    O0    both leave everything as written.
    O1    both lower a white list only and keep the rest in float32.
    O2    MindSpore lowers all cells but a black list of norms and computes the loss in float32; softmax and reductions
          run in float16. Here a graph has no cells: matrix products, convolutions and activations are lowered, what
          follows them too, softmax included; norms stay float32, and so do sums and means, because TensorFlow writes
          layer norms and losses out of them.
    O3    as O2, but norms, sums and means follow as well. Statistics of batch norm stay float32 inside the op.
    auto  MindSpore: each operator by its list; here allow_mix_precision, with MindSpore's black list added.

In all levels losses start at the ops that are typical of them (cross-entropy, logarithm, square, absolute value): these
and what is computed from them stay in float32.
"""

import functools
import logging
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from npu_shim import configs
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.tables.op_table import OpTable

LOG = logging.getLogger("npu_shim")
LEVEL, WHITE, BLACK = "npu_shim_amp_level", "npu_shim_white_list", "npu_shim_black_list"
# which level a list of the user's own replaces the list of
LEVEL_OF = {WHITE: "O1", BLACK: "O2"}
DTYPES = ("float16", "bfloat16")
# lists of a row of the table -> what they become in an op table; a later one wins
LISTED = {"white": "white", "gray": "gray", "losses": "black", "black": "black"}


@functools.lru_cache(maxsize=None)
def levels() -> Mapping[str, Mapping[str, Any]]:
    """The rows of the table, by level."""
    rows: Mapping[str, Mapping[str, Any]] = configs.load("amp_levels.json")
    return rows


def amp_level(level: str, config: Any = None, dtype: Any = "float16") -> Any:
    """Selects an amp level.

    Args:
        level: "O0", "O1", "O2", "O3" or "auto".
        config: None, a tf.compat.v1.ConfigProto or an NPURunConfig; it is not changed.
        dtype: the low precision, "float16" or "bfloat16", or a TensorFlow dtype of that name.

    Returns:
        A new config of the same kind with the level in it; without `config` the option values as a dict, for
        `npu_shim.rewrite(graph_def, fetches, **npu_shim.amp_level("O2"))`.

    Raises:
        ConfigError: no such level or dtype, or the config has a precision mode, level or list already.

    Example:
        >>> session = tf.compat.v1.Session(config=npu_shim.amp_level("O2", tf.compat.v1.ConfigProto()))
    """
    if level not in tuple(levels()):
        raise ConfigError("amp_level: '%s' is none of %s%s" % (level, ", ".join(levels()), nearest(level, levels())))
    return _applied({LEVEL: level, "precision_mode": _mode(level, dtype)}, config)


def custom_mixed_precision(
    config: Any = None,
    *,
    white_list: Optional[Iterable[str]] = None,
    black_list: Optional[Iterable[str]] = None,
    dtype: Any = "float16"
) -> Any:
    """Selects mixed precision by a list of one's own: exactly one of the two.

    Args:
        config: as in `amp_level`.
        white_list: op types to lower; all others stay float32, as in level O1.
        black_list: op types that stay float32 in place of level O2's black list; losses stay float32 in any case.
            Both take TensorFlow op types, or Ascend's names where TensorFlow has no op of that name.
        dtype: as in `amp_level`.

    Returns:
        As `amp_level`.

    Raises:
        ConfigError: both lists or none, an op type that is not known, or what `amp_level` raises.

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
    ops = own_ops(word, listed, _default_table())
    forgotten = sorted(set(get_black_list()) - set(ops)) if option == BLACK else []
    if forgotten:
        text = "npu_shim: custom_mixed_precision: not in black_list, so they may be lowered: %s"
        LOG.warning(text, ", ".join(forgotten))
    return _applied({option: ",".join(listed), "precision_mode": _mode(LEVEL_OF[option], dtype)}, config)


def get_white_list() -> List[str]:
    """Returns a new list of the TensorFlow op types that level O1 lowers, to edit for `custom_mixed_precision`."""
    return sorted(row_ops("O1", "white", _default_table()))


def get_black_list() -> List[str]:
    """Returns a new list of the TensorFlow op types that O2 keeps in float32, beside losses and sums."""
    return sorted(row_ops("O2", "black", _default_table()))


def implied(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Option values with what a level or list of the user's own in them leaves unsaid: precision mode and profile."""
    level = _level_of(values)
    if level not in levels():
        return dict(values)
    row = levels()[level]
    full = {"precision_mode": row["precision_mode"]["float16"]} if "precision_mode_v2" not in values else {}
    if "profile" in row:
        full["npu_shim_profile"] = row["profile"]
    full.update(values)
    return full


def problems(values: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    """(option, message) for each contradiction between a level, the user's own lists and the precision modes."""
    given = [name for name in (LEVEL, WHITE, BLACK) if name in values]
    if len(given) > 1:
        yield given[1], "cannot be assigned at the same time as %s" % given[0]
    level = _level_of(values)
    if level not in levels():
        return
    modes = levels()[level]["precision_mode"].values()
    if "precision_mode_v2" in values:
        yield given[0], "cannot be assigned at the same time as precision_mode_v2"
    elif values.get("precision_mode", next(iter(modes))) not in modes:
        expected = " or ".join(sorted(set(modes)))
        yield given[0], "goes with precision_mode %s, got '%s'" % (expected, values["precision_mode"])


def changes(values: Mapping[str, Any], table: OpTable) -> Dict[str, str]:
    """What a level, or a list of the user's own, changes in an op table: TensorFlow op type -> list.

    Raises:
        ConfigError: an op type of the user's own list is not known.
    """
    level = _level_of(values)
    if level not in levels():
        return {}
    changed: Dict[str, str] = {}
    others = levels()[level].get("others")
    if others:
        changed = {op: others for op, entry in table.entries.items() if entry.role == "computes"}
    own = {"white": WHITE, "black": BLACK}
    for key, listed in LISTED.items():
        if own.get(key) in values:
            names = [name.strip() for name in values[own[key]].split(",") if name.strip()]
            ops = own_ops(own[key], names, table)
        else:
            ops = row_ops(level, key, table)
        changed.update((op, listed) for op in ops)
    return changed


def _level_of(values: Mapping[str, Any]) -> Any:
    for option in (WHITE, BLACK):
        if option in values:
            return LEVEL_OF[option]
    return values.get(LEVEL)


def _mode(level: str, dtype: Any) -> str:
    name = getattr(dtype, "name", dtype)
    modes: Mapping[str, str] = levels()[level]["precision_mode"]
    if name not in tuple(modes):
        raise ConfigError("dtype: %r is none of %s%s" % (name, ", ".join(DTYPES), nearest(name, DTYPES)))
    return modes[name]


def row_ops(level: str, key: str, table: OpTable) -> List[str]:
    """TensorFlow op types of one list of a level; the file has Ascend's names, each for all of its TensorFlow ops."""
    return [op for name in levels()[level].get(key, ()) for op in table.ops(name)]


def own_ops(where: str, names: Iterable[str], table: OpTable) -> List[str]:
    """TensorFlow op types of a user's names; TensorFlow's own meaning comes first, so that our lists can be edited."""
    found: List[str] = []
    wrong: List[str] = []
    for name in names:
        ops = (name,) if name in table.entries else table.ops(name)
        found += ops
        if not ops:
            hint = nearest(name, [*table.entries, *table.names])
            wrong.append("%s: %s: no op type of this name%s" % (where, name, hint))
    if wrong:
        raise ConfigError(*wrong)
    return found


def _default_table() -> OpTable:
    from npu_shim.options import precision

    return precision.profile_table("ascend910")


def _applied(values: Dict[str, str], config: Any) -> Any:
    """The values themselves, or a copy of the config with the values in its NpuOptimizer entry."""
    if config is None:
        return values
    import tensorflow.compat.v1 as tf

    from npu_shim.options import config_proto

    if isinstance(config, tf.ConfigProto):
        return config_proto.with_values(config, _agreeing(values, config_proto.read(config)))
    from npu_shim.estimator import estimator
    from npu_shim.options import run_config

    if not isinstance(config, run_config.NPURunConfig):
        expected = "a ConfigProto, an NPURunConfig or None"
        raise ConfigError("amp_level: config must be %s, got %s" % (expected, type(config).__name__))
    _agreeing(values, config_proto.read(estimator.session_config_of(config)))
    session_config = config.session_config or tf.ConfigProto()
    return config.replace(session_config=config_proto.with_values(session_config, values))


def _agreeing(values: Dict[str, str], already: Mapping[str, Any]) -> Dict[str, str]:
    taken = [name for name in ("precision_mode", "precision_mode_v2", LEVEL, WHITE, BLACK) if name in already]
    clash = [name for name in taken if already[name] != values.get(name)]
    if clash:
        found = ", ".join("%s '%s'" % (name, already[name]) for name in clash)
        raise ConfigError("the config has %s already; the level chooses the precision mode and the lists" % found)
    return values
