"""Resolves a user's op types: Ascend IR names, their variants and TensorFlow's names; explains unmatched ones.

Source: the op types of Ascend's fusion engine; users' files have its names, TensorFlow's, and misspelt ones.
"""

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from npu_shim import configs
from npu_shim.rewriter.errors import closest, shortened
from npu_shim.rewriter.tables.op_table import OpTable


@dataclass(frozen=True)
class Unmatched:
    """An op type in a user's file that stands for no TensorFlow op.

    Attributes:
        option: the option whose file contains it.
        name: in the user's spelling.
        suggestion: the nearest known name, or None.
        ops: TensorFlow op types that the suggestion stands for.
        note: why a known Ascend op has no TensorFlow op, else "".
    """

    option: str
    name: str
    suggestion: Optional[str] = None
    ops: Tuple[str, ...] = ()
    note: str = ""


def unmatched(option: str, name: str, table: OpTable) -> Unmatched:
    """Explains a name for which `table.ops` has nothing."""
    note = without_tensorflow().get(name, "")
    if note:
        return Unmatched(option, name, note=note)
    suggestion = closest(name, set(table.names) | set(table.entries))
    return Unmatched(option, name, suggestion, table.ops(suggestion) if suggestion else ())


def without_tensorflow() -> Mapping[str, str]:
    """Returns the Ascend op types for which TensorFlow has no op, each with TensorFlow's substitute."""
    notes: Mapping[str, str] = configs.load("ascend_names.json")["without_tensorflow"]
    return notes


def describe(missing: Unmatched, op_counts: Optional[Mapping[str, int]] = None) -> str:
    """Returns one line about an unmatched name.

    Args:
        missing: the name.
        op_counts: number of nodes of the graph by TensorFlow op type; None where there is no graph.
    """
    where = shortened("%s: %s" % (missing.option, missing.name))
    if missing.note:
        return "%s: an op of Ascend's without a TensorFlow op, so it changes nothing: %s" % (where, missing.note)
    if missing.suggestion is None:
        return "%s: no op type of this name, so it changes nothing" % where
    text = "%s: no op type of this name, so it changes nothing (did you mean '%s'?)" % (where, missing.suggestion)
    if op_counts is None:
        return text
    count = sum(op_counts.get(op, 0) for op in missing.ops)
    return "%s; that would have met %d node%s of this graph" % (text, count, "" if count == 1 else "s")
