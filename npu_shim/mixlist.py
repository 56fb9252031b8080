"""modify_mixlist: a user's changes to the white, gray and black lists.

    {"black-list": {"to-add": ["ReduceSumD"]}, "white-list": {"to-remove": ["MatMulV2"], "to-add": ["BiasAdd"]}}

Source: the parser and the conflict rules of Ascend's fusion engine. Where that parser rejects the // comments that
Ascend's own documents show, this one accepts them.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Mapping, Sequence, Tuple

from .rewriter.errors import ConfigError, nearest
from .rewriter.op_table import OpTable

LISTS = {"black-list": "black", "white-list": "white", "gray-list": "gray"}
WAYS = ("to-add", "to-remove")

# All that may be asked for one op, each a set of (way, list). Everything else contradicts itself.
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

# a string, or one of the two kinds of comment; strings come first so that "//" inside one is no comment
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclass(frozen=True)
class Mixlist:
    """A read file: what it asks for each op name that it holds, in the user's spelling."""

    path: str
    wishes: Mapping[str, Wish]


def read(path: str) -> Mixlist:
    """Reads a mixlist file.

    Args:
        path: as the user gave it; a relative one counts from the working directory. JSON with // and /* */ comments
            and a byte order
            mark; what follows the closing brace is not looked at; of a repeated key the last counts.

    Raises:
        ConfigError: (INTERNAL, as the bridge answers) the file is missing or unreadable, is not JSON, has another
            structure, or asks a
            contradiction for an op. All contradictions are reported at once.
    """
    try:
        with open(path, encoding="utf-8-sig") as f:
            text = f.read()
    except OSError as reason:
        raise _error(path, "cannot be read: %s" % (reason.strerror or reason)) from reason
    except ValueError as reason:
        raise _error(path, "is not UTF-8 text (%s)" % reason) from reason
    return parse(text, path)


def parse(text: str, path: str) -> Mixlist:
    """Reads a mixlist from its text; `path` is its name in messages. Raises as `read` does."""
    plain = _TOKEN.sub(lambda found: found.group() if found.group()[0] == '"' else " ", text)
    try:
        lists, _ = json.JSONDecoder().raw_decode(plain.lstrip())
    except ValueError as reason:
        raise _error(path, "is not JSON: %s" % reason) from reason
    except RecursionError as reason:
        raise _error(path, "is not JSON that can be read: it nests too deeply") from reason
    wishes: Dict[str, Wish] = {}
    for listed, way, op in _rows(lists, path):
        wishes[op] = wishes.get(op, frozenset()) | {(way, listed)}
    wrong = [op for op in wishes if wishes[op] not in LEGAL]
    if wrong:
        raise _error(path, *("op %s cannot be both: %s" % (op, _in_words(wishes[op])) for op in wrong))
    return Mixlist(path, wishes)


def _rows(lists: Any, path: str) -> List[Tuple[str, str, str]]:
    """(list, "add" or "remove", op) for every op that the file names."""
    rows = []
    for key, ways in _items(lists, path, "the file", tuple(LISTS)):
        for way, ops in _items(ways, path, "'%s'" % key, WAYS):
            if not isinstance(ops, list) or not all(isinstance(op, str) for op in ops):
                raise _error(path, "'%s' of '%s' is %s, expected a list of op types" % (way, key, _short(ops)))
            rows += [(LISTS[key], way[3:], op) for op in ops]
    return rows


def _items(value: Any, path: str, where: str, known: Sequence[str]) -> List[Tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _error(path, "%s is %s, expected an object with %s" % (where, _short(value), " and ".join(known)))
    for key in value:
        if key not in known:
            expected = ", ".join(known) + nearest(key, known)
            raise _error(path, "%s has the key '%s', expected %s" % (where, key, expected))
    return list(value.items())


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _in_words(wish: Wish) -> str:
    words = sorted("%s the %s-list" % ("added to" if way == "add" else "removed from", name) for way, name in wish)
    return " and ".join(words) if len(words) > 1 else words[0] + " alone"


def _error(path: str, *problems: str) -> ConfigError:
    return ConfigError(*("modify_mixlist file '%s' %s" % (path, p) for p in problems), code="INTERNAL")


@dataclass(frozen=True)
class Merged:
    """A table with a mixlist in it; `unmatched` has one line for each op name that stands for no op of the table."""

    table: OpTable
    warnings: Tuple[str, ...]
    unmatched: Tuple[str, ...]


def merge(mixlist: Mixlist, table: OpTable) -> Merged:
    """Puts a mixlist's changes into an op table.

    to-add black or white puts an op on that list; to-remove from the list that it is on makes it gray; to-remove from
    another list
    changes nothing and warns; gray to-add changes nothing by itself. One name may stand for several TensorFlow ops.
    """
    changes: Dict[str, str] = {}
    warnings: List[str] = []
    unmatched: List[str] = []
    for op, wish in mixlist.wishes.items():
        entries = table.ops(op)
        if not entries:
            known = set(table.names) | set(table.entries)
            unmatched.append("%s: no op type of this name%s" % (op, nearest(op, known)))
        for name in entries:
            now = table.entries[name].listed
            changes[name] = result(now, wish)
            warnings += [
                "%s: not on the %s-list, so it cannot be removed from it" % (op, listed)
                for way, listed in sorted(wish)
                if way == "remove" and listed != now
            ]
    return Merged(table.with_lists(changes), tuple(warnings), tuple(unmatched))


def result(now: str, wish: Wish) -> str:
    """The list ("white", "gray" or "black") of an op that is on list `now` and for which a legal `wish` was made."""
    for listed in ("black", "white"):
        if ("add", listed) in wish:
            return listed
    return "gray" if ("remove", now) in wish else now
