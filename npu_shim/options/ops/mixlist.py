"""modify_mixlist: a user's changes to the white, gray and black lists.

    {"black-list": {"to-add": ["ReduceSumD"]}, "white-list": {"to-remove": ["MatMulV2"], "to-add": ["BiasAdd"]}}

Source: the parser and the conflict rules of Ascend's fusion engine. Where that parser rejects the // comments that
Ascend's own documents show, this one accepts them.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Mapping, Sequence, Tuple

from npu_shim.options.ops.op_names import Unmatched, unmatched
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.tables.op_table import OpTable

OPTION = "modify_mixlist"
LISTS = {"black-list": "black", "white-list": "white", "gray-list": "gray"}
WAYS = ("to-add", "to-remove")

# Every legal request for one op, each a set of (way, list). Anything else contradicts itself.
LEGAL = frozenset(
    frozenset(wish)
    for wish in (
        {("remove", "black")},
        {("remove", "white")},
        {("add", "gray")},
        {("add", "gray"), ("remove", "black")},
        {("add", "gray"), ("remove", "white")},
        {("add", "white")},
        {("add", "white"), ("remove", "gray")},
        {("add", "white"), ("remove", "black")},
        {("add", "black")},
        {("add", "black"), ("remove", "gray")},
        {("add", "black"), ("remove", "white")},
    )
)
Wish = FrozenSet[Tuple[str, str]]

# roles of ops for which a list has no meaning
FIXED_ROLES = {
    "pinned": "is pinned by the op table",
    "source": "reads or makes its values",
    "container": "belongs to a container",
    "cast": "is a Cast, which is kept as written",
}

# a string, or one of the two kinds of comment; strings come first so that "//" inside one is no comment
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclass(frozen=True)
class Mixlist:
    """A read file: the request for each op name in it, in the user's spelling."""

    path: str
    wishes: Mapping[str, Wish]
    warnings: Tuple[str, ...] = ()


def read(path: str) -> Mixlist:
    """Reads a mixlist file.

    Args:
        path: as the user gave it; a relative path starts at the working directory. JSON that may have // and /* */
            comments and a byte order mark; text after the closing brace is ignored; the last of repeated keys wins,
            with a warning.

    Raises:
        ConfigError: (INTERNAL, as the bridge answers) the file is missing or unreadable, is not JSON, has another
            structure, or contradicts itself about an op. All contradictions are reported at once.
    """
    try:
        with open(path, encoding="utf-8-sig") as f:
            text = f.read()
    except OSError as reason:
        raise _error(path, "cannot be read: %s" % (reason.strerror or reason)) from reason
    except ValueError as reason:
        raise _error(path, "cannot be read as UTF-8 text: %s" % reason) from reason
    return parse(text, path)


def parse(text: str, path: str) -> Mixlist:
    """Reads a mixlist from its text; `path` is its name in messages. Raises as `read` does."""
    plain = _TOKEN.sub(lambda match: match.group() if match.group()[0] == '"' else " ", text)
    repeated: List[str] = []

    def last_of_each(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        keys = [key for key, _ in pairs]
        repeated.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
        return dict(pairs)

    try:
        lists, _ = json.JSONDecoder(object_pairs_hook=last_of_each).raw_decode(plain.lstrip())
    except ValueError as reason:
        raise _error(path, "is not JSON: %s" % reason) from reason
    except RecursionError as reason:
        raise _error(path, "is not JSON that can be read: it nests too deeply") from reason
    wishes: Dict[str, Wish] = {}
    for listed, way, op in _rows(lists, path):
        wishes[op] = wishes.get(op, frozenset()) | {(way, listed)}
    wrong = [op for op in wishes if wishes[op] not in LEGAL]
    if wrong:
        raise _error(path, *("op %s cannot be both: %s" % (op, _describe_wish(wishes[op])) for op in wrong))
    again = "%s: file '%s' has '%s' more than once in one object; the last counts"
    return Mixlist(path, wishes, tuple(again % (OPTION, path, key) for key in repeated))


def _rows(lists: Any, path: str) -> List[Tuple[str, str, str]]:
    """(list, "add" or "remove", op) for every op that the file names."""
    rows = []
    for key, ways in _items(lists, path, "the file", tuple(LISTS)):
        for way, ops in _items(ways, path, "'%s'" % key, WAYS):
            if not isinstance(ops, list) or not all(isinstance(op, str) for op in ops):
                raise _error(path, "'%s' of '%s' is %s, expected a list of op types" % (way, key, _shorten(ops)))
            rows += [(LISTS[key], way[3:], op) for op in ops]
    return rows


def _items(value: Any, path: str, where: str, known: Sequence[str]) -> List[Tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _error(path, "%s is %s, expected an object with %s" % (where, _shorten(value), " and ".join(known)))
    for key in value:
        if key not in known:
            expected = ", ".join(known) + nearest(key, known)
            raise _error(path, "%s has the key '%s', expected %s" % (where, key, expected))
    return list(value.items())


def _shorten(value: Any) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        text = "nested very deeply"
    return text if len(text) <= 60 else text[:57] + "..."


def _describe_wish(wish: Wish) -> str:
    words = sorted("%s the %s-list" % ("added to" if way == "add" else "removed from", name) for way, name in wish)
    return " and ".join(words) if len(words) > 1 else words[0] + " alone"


def _error(path: str, *problems: str) -> ConfigError:
    return ConfigError(*("%s: file '%s' %s" % (OPTION, path, p) for p in problems), code="INTERNAL")


@dataclass(frozen=True)
class Match:
    """An op name of a mixlist and what it did: (TensorFlow op type, its list before, its list after) for each op."""

    name: str
    changes: Tuple[Tuple[str, str, str], ...]


ADDED_TO_GRAY = "stays on the %s-list: only to-remove it from there makes it gray, adding to the gray-list does nothing"


@dataclass(frozen=True)
class Merged:
    """An op table with a mixlist applied; each name of the mixlist is either in `matched` or in `unmatched`."""

    table: OpTable
    warnings: Tuple[str, ...]
    unmatched: Tuple[Unmatched, ...]
    matched: Tuple[Match, ...]


def merge(mixlist: Mixlist, table: OpTable) -> Merged:
    """Applies a mixlist's changes to an op table.

    to-add to the black or white list puts an op on that list. to-remove from its current list makes an op gray, from
    another list it changes nothing and warns. to-add to the gray list changes nothing by itself. One name may stand for
    several TensorFlow ops, and several names for one: ReduceSum and ReduceSumD are both Sum.
    """
    asked: Dict[str, List[str]] = {}  # TensorFlow op type -> the names that stand for it
    for name in mixlist.wishes:
        for op in table.ops(name):
            asked.setdefault(op, []).append(name)
    warnings: List[str] = list(mixlist.warnings)
    changes = {op: _resolve_list(op, names, mixlist, table, warnings) for op, names in asked.items()}
    for name in mixlist.wishes:
        warnings += _warnings_about(name, mixlist.wishes[name], table, changes)
    matched = tuple(
        Match(name, tuple((op, table.entries[op].listed, changes[op]) for op in table.ops(name)))
        for name in mixlist.wishes
        if table.ops(name)
    )
    missing = tuple(unmatched(OPTION, name, table) for name in mixlist.wishes if not table.ops(name))
    return Merged(table.with_lists(changes), tuple(warnings), missing, matched)


def _resolve_list(op: str, names: Sequence[str], mixlist: Mixlist, table: OpTable, warnings: List[str]) -> str:
    """Returns the list that an op ends up on when `names` stand for it."""
    now: str = table.entries[op].listed
    decided = {name: result(now, mixlist.wishes[name]) for name in names if _chooses_list(now, mixlist.wishes[name])}
    if not decided:
        return now
    last = list(decided)[-1]
    if len(set(decided.values())) > 1:
        words = ", ".join("%s makes it %s" % pair for pair in decided.items())
        warnings.append("%s: several names stand for %s: %s; the last counts" % (OPTION, op, words))
    return decided[last]


def _chooses_list(now: str, wish: Wish) -> bool:
    """Whether a wish chooses the list of an op that is on list `now`."""
    return result(now, wish) != now or bool(wish & {("add", "black"), ("add", "white")})


def _warnings_about(name: str, wish: Wish, table: OpTable, changes: Mapping[str, str]) -> List[str]:
    """Returns the requests of a name that have no effect, one line each for all of its ops together."""
    texts: List[str] = []
    for way, listed in sorted(wish):
        elsewhere = [op for op in table.ops(name) if way == "remove" and table.entries[op].listed != listed]
        if elsewhere:
            texts.append("not on the %s-list, so it cannot be removed from it" % listed + _op_suffix(name, elsewhere))
    for listed in ("white", "black") if ("add", "gray") in wish else ():
        kept = [op for op in table.ops(name) if changes[op] == listed == table.entries[op].listed]
        if kept:
            texts.append(ADDED_TO_GRAY % listed + _op_suffix(name, kept))
    fixed = [op for op in table.ops(name) if changes[op] != "black" and changes[op] != table.entries[op].listed]
    for role, why in FIXED_ROLES.items():
        ops = [op for op in fixed if table.entries[op].role == role]
        if ops:
            texts.append("keeps its dtype whatever its list, because it %s%s" % (why, _op_suffix(name, ops)))
    clash = table.entries.get(name)
    if clash is not None and name not in table.ops(name):
        own = " and ".join(table.ops(name))
        texts.append("Ascend's name of TensorFlow's %s; TensorFlow's own %s is Ascend's %s" % (own, name, clash.name))
    return ["%s: %s: %s" % (OPTION, name, text) for text in texts]


def _op_suffix(name: str, ops: Sequence[str]) -> str:
    return "" if list(ops) == [name] else " (%s)" % ", ".join(ops)


def describe_match(match: Match) -> str:
    """Returns one line about a name that stands for ops: the ops, and how their lists changed."""
    groups: Dict[Tuple[str, str], List[str]] = {}
    for op, was, becomes in match.changes:
        groups.setdefault((was, becomes), []).append(op)
    parts = (
        "%s %s" % (", ".join(ops), "stays %s" % was if was == becomes else "was %s, becomes %s" % (was, becomes))
        for (was, becomes), ops in groups.items()
    )
    return "%s: %s: %s" % (OPTION, match.name, "; ".join(parts))


def result(now: str, wish: Wish) -> str:
    """Returns the list ("white", "gray" or "black") to which a legal `wish` moves an op of list `now`."""
    for listed in ("black", "white"):
        if ("add", listed) in wish:
            return listed
    return "gray" if ("remove", now) in wish else now
