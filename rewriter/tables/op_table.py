"""The op table: which list an op is on, what it does to its values, and the names it goes by.

Read from JSON files in the shape of Ascend's op information library: `{"MatMulV2": {"precision_reduce": {"flag":
"true"}}}`, flag "true" for white, "false" for black, absent for gray. Our own keys stand beside the vendor's, see
`KEYS`.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..errors import ConfigError, nearest, one_of

LISTS = {"true": "white", "false": "black"}
FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")
ROLES = ("computes", "moves", "source", "container", "cast", "pinned")
# our own keys of an entry, beside the vendor's "precision_reduce"
KEYS = {
    "tensorflow": "the TensorFlow ops it stands for; absent: the op of the same name",
    "role": "what the op does to values, one of ROLES; absent: computes",
    "engine": "'cube' for matrix and convolution ops",
    "dtypes": "the floating dtypes that the profile's hardware runs it in; absent: all",
    "keep": "type attributes that stay as they are when the op is lowered",
    "note": "why",
}


@dataclass(frozen=True)
class Entry:
    """What the table says of one Ascend IR op type and the TensorFlow ops that it stands for."""

    name: str
    listed: str = "gray"  # white, gray or black
    role: str = "computes"
    cube: bool = False
    dtypes: Optional[FrozenSet[str]] = None
    keep: FrozenSet[str] = frozenset()
    tensorflow: Tuple[str, ...] = ()
    note: str = ""
    asked: bool = False  # whether its list is the user's own word


@dataclass(frozen=True)
class OpTable:
    """Entries by TensorFlow op type.

    Attributes:
        profile: its name, for reports.
        entries: TensorFlow op type -> entry.
        names: every Ascend IR name and variant -> TensorFlow op types.
        warnings: what reading the files brought up.
        files: Ascend IR name -> path of the file that its entry is from.
        rule: what decides ops on neither list: "producers", as on Ascend, or "neighbours", as in TensorFlow's own pass.
    """

    profile: str
    entries: Mapping[str, Entry]
    names: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    warnings: Tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    rule: str = "producers"

    def ops(self, name: str) -> Tuple[str, ...]:
        """TensorFlow op types that an Ascend IR name, a variant of one, or a TensorFlow name stands for; () if none."""
        return self.names.get(name) or ((name,) if name in self.entries else ())

    def is_product(self, op: str) -> bool:
        """Whether a TensorFlow op type is a matrix product or a convolution."""
        return op in self.entries and self.entries[op].cube

    def with_lists(self, changes: Mapping[str, str]) -> "OpTable":
        """This table with other lists: `changes` maps TensorFlow op types to "white", "gray" or "black".

        An op that only moves data has no list of its own; once it is put on the white or the black list it counts as
        an op that computes, so that the list decides.
        """
        return replace(self, entries={**self.entries, **{op: self._listed(op, changes[op]) for op in changes}})

    def _listed(self, op: str, listed: str) -> Entry:
        entry = self.entries[op]
        moved = entry.role == "moves" and listed != "gray"
        return replace(entry, listed=listed, role="computes" if moved else entry.role, asked=True)


def read_entry(name: str, row: Mapping[str, Any]) -> Entry:
    """Reads one entry of an op information file; keys of the vendor that say nothing about precision are passed over.

    Raises:
        ConfigError: a flag, a role or a list that the format does not have.
    """
    reduce = row.get("precision_reduce", {})
    if not isinstance(reduce, dict):
        raise ConfigError("op %s: precision_reduce is %r, expected an object with 'flag'" % (name, reduce))
    flag = reduce.get("flag")
    role = row.get("role", "computes")
    if flag not in (None, "true", "false"):
        expected = "'true' (white) or 'false' (black)"
        raise ConfigError("op %s: precision_reduce.flag is %r, expected %s" % (name, flag, expected))
    one_of(role, ROLES, "op %s: role" % name)
    dtypes = _strings(name, row, "dtypes", ())
    unknown = [dtype for dtype in dtypes if dtype not in FLOAT_NAMES]
    if unknown:
        hint = ", ".join(FLOAT_NAMES) + nearest(unknown[0], FLOAT_NAMES)
        raise ConfigError("op %s: dtypes has %r, expected some of %s" % (name, unknown[0], hint))
    return Entry(
        name=name,
        listed=LISTS.get(str(flag), "gray"),
        role=role,
        cube=row.get("engine") == "cube",
        dtypes=frozenset(dtypes) if "dtypes" in row else None,
        keep=frozenset(_strings(name, row, "keep", ())),
        tensorflow=_strings(name, row, "tensorflow", (name,)),
        note=str(row.get("note", "")),
    )


def _strings(name: str, row: Mapping[str, Any], key: str, default: Tuple[str, ...]) -> Tuple[str, ...]:
    value = row.get(key, default)
    if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) for text in value):
        raise ConfigError("op %s: %s is %r, expected a list of strings" % (name, key, value))
    return tuple(value)


def read_file(path: str) -> Dict[str, Entry]:
    """Reads one op information file: dict of Ascend IR op type to `Entry`.

    Raises:
        ConfigError: the file is missing, is not JSON, or is not an object of entries; the message names the file.
    """
    try:
        with open(path, encoding="utf-8-sig") as f:
            rows = json.load(f, object_pairs_hook=_without_repetition)
        if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
            raise ConfigError("expected a JSON object of op types")
        return {name: read_entry(name, row) for name, row in rows.items()}
    except OSError as reason:
        raise ConfigError("op information file %s cannot be read: %s" % (path, reason.strerror)) from reason
    except ConfigError as reason:
        raise ConfigError("op information file %s: %s" % (path, "; ".join(reason.problems))) from reason
    except (ValueError, RecursionError) as reason:
        raise ConfigError("op information file %s is not JSON: %s" % (path, reason)) from reason


def _without_repetition(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ConfigError("'%s' appears twice in one object" % next(key for key in keys if keys.count(key) > 1))
    return row


def build(profile: str, files: Sequence[str], variants: Mapping[str, str], all_dtypes: bool = False) -> OpTable:
    """Builds the table of a profile.

    Args:
        profile: its name, for reports.
        files: paths of op information files; where two have the same op, the later wins, with a warning that names
            both.
        variants: further Ascend IR names -> the IR name of the entry that they stand for.
        all_dtypes: whether the hardware runs every op in float16 and float32, whatever the entries' `dtypes` say.
    """
    rows: Dict[str, Tuple[Entry, str]] = {}
    warnings: List[str] = []
    for path in files:
        for name, entry in read_file(path).items():
            if name in rows:
                _, first = rows.pop(name)  # so that a later file is also later in order
                warnings.append("op %s is in %s and in %s; the later one counts" % (name, first, path))
            rows[name] = (replace(entry, dtypes=None) if all_dtypes else entry, path)
    entries: Dict[str, Entry] = {}
    for entry, path in rows.values():
        for op in entry.tensorflow:
            if op in entries:
                text = "TensorFlow op %s is in op %s of %s and in op %s of %s; the later one counts"
                warnings.append(text % (op, entries[op].name, rows[entries[op].name][1], entry.name, path))
            entries[op] = entry
    origins = {name: path for name, (_, path) in rows.items()}
    names = _names([entry for entry, _ in rows.values()], variants)
    return OpTable(profile, entries, names, tuple(warnings), origins)


def _names(entries: Iterable[Entry], variants: Mapping[str, str]) -> Dict[str, Tuple[str, ...]]:
    names = {entry.name: entry.tensorflow for entry in entries}
    names.update({variant: names[base] for variant, base in variants.items() if base in names and variant not in names})
    return names
