"""MindSpore's amp levels O0, O1, O2, O3 and auto, in the terms of Ascend's precision modes and lists.

The levels are rows of `configs/amp_levels.json`. What each level means in MindSpore 2.9.0 and here:

    O0    Both leave everything as written.
    O1    Both lower a white list only and keep the rest in float32.
    O2    MindSpore lowers all cells but a black list of norms and computes the loss in float32; softmax and reductions
          run in float16. A TensorFlow graph has no cells: matrix products, convolutions and activations are lowered,
          and so is what follows them, softmax included. Norms stay float32, and so do sums and means, because
          TensorFlow composes layer norms and losses of them.
    O3    As O2, but norms, sums and means follow as well. Statistics of batch norm stay float32 inside the op.
    auto  MindSpore decides each operator by its list; here it is allow_mix_precision with MindSpore's black list added.

In every level a loss starts at the ops that are typical of losses (cross-entropy, logarithm, square, absolute value).
These ops, and everything computed from them, stay in float32.
"""

import functools
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

from npu_shim import configs
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.tables.op_table import OpTable

LEVEL, WHITE, BLACK = "npu_shim_amp_level", "npu_shim_white_list", "npu_shim_black_list"
# the level whose list a custom list replaces
LEVEL_OF = {WHITE: "O1", BLACK: "O2"}
# lists of a row of the table -> what they become in an op table; a later one wins
LISTED = {"white": "white", "gray": "gray", "losses": "black", "black": "black"}


@functools.lru_cache(maxsize=None)
def levels() -> Mapping[str, Mapping[str, Any]]:
    """The rows of the table, by level."""
    rows: Mapping[str, Mapping[str, Any]] = configs.load("amp_levels.json")
    return rows


def implied(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Fills in the precision mode and profile that a level or custom list implies."""
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
    """Yields (option, message) for each contradiction between a level, custom lists and the precision modes."""
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
    """Returns what a level or custom list changes in an op table: TensorFlow op type -> list.

    Raises:
        ConfigError: a custom list names an unknown op type.
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
            ops = ops_of_user(own[key], names, table)
        else:
            ops = ops_of_level(level, key, table)
        changed.update((op, listed) for op in ops)
    return changed


def _level_of(values: Mapping[str, Any]) -> Any:
    for option in (WHITE, BLACK):
        if option in values:
            return LEVEL_OF[option]
    return values.get(LEVEL)


def ops_of_level(level: str, key: str, table: OpTable) -> List[str]:
    """Returns the TensorFlow op types of one list of a level.

    The file has Ascend's names; each stands for all of its TensorFlow ops.
    """
    return [op for name in levels()[level].get(key, ()) for op in table.ops(name)]


def ops_of_user(where: str, names: Iterable[str], table: OpTable) -> List[str]:
    """Returns the TensorFlow op types of a user's names.

    A name is looked up as TensorFlow's before it is looked up as Ascend's, so that our lists can be edited.
    """
    ops_listed: List[str] = []
    wrong: List[str] = []
    for name in names:
        ops = (name,) if name in table.entries else table.ops(name)
        ops_listed += ops
        if not ops:
            hint = nearest(name, [*table.entries, *table.names])
            wrong.append("%s: %s: no op type of this name%s" % (where, name, hint))
    if wrong:
        raise ConfigError(*wrong)
    return ops_listed
