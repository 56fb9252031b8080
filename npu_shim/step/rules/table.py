"""What a row of the table of rules is.

A family is a file with a dict RULES, op -> row; `ops.FAMILIES` lists them, most of them files of this folder.
Attributes are as in `graph`, with an op's defaults filled in. Values are as in `values`: a rule computes with `xp(...)`
where its op is used on shapes, so that what is known stays known, and with jax.numpy and lax where it is not. It gives
one value, or a tuple of values for an op of several outputs, in the dtypes that TensorFlow gives.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

Attrs = Mapping[str, Any]
ALL = -1000  # all inputs, in `Rule.known`
SEGMENTS = "segments"  # among a node's attributes: how many segments there are, see `segments`
IDS = {
    **{"Segment" + kind: 1 for kind in ("Sum", "Mean", "Prod", "Max", "Min")},
    **{"SparseSegment" + kind: 2 for kind in ("Sum", "Mean", "SqrtN")},
}  # op that gives as many rows as its last id says -> number of its input of ids


class Rule(NamedTuple):
    """An op without effects.

    Attributes:
        apply: function of (attrs, *values).
        known: numbers of the inputs that must be known (negative ones from the end), such as shapes and axes; ALL for
            all of them.
        rows: how it takes data-sized rows: None for not at all; "each" where every row of the result is made of the
            same row of the inputs; or a function of (attrs, *values), some of which are Rows.
        text: whether it takes constants of strings.
        lists: whether it takes TensorLists.
        places: of an op that writes or reads elements by an index: function of (attrs, values, result) that gives the
            index, and how many elements there are (None if any may be added); what is out of range is not done.
    """

    apply: Callable[..., Any]
    known: tuple[int, ...] = ()
    rows: Any = None
    text: bool = False
    lists: bool = False
    places: Callable[..., Any] | None = None


class Update(NamedTuple):
    """An op that sets variables.

    Attributes:
        apply: function of (attrs, *values), where values of variables stand for its first inputs; it gives their new
            values: one, or a tuple with one for each, None for a variable that stays.
        handles: how many of the first inputs are variables.
        known: as of Rule.
        rows: whether it takes Rows among its other inputs.
        places: number of the input, behind the variables, that names the places that alone are written.
    """

    apply: Callable[..., Any]
    handles: int = 1
    known: tuple[int, ...] = ()
    rows: bool = False
    places: int | None = None


class Effect(NamedTuple):
    """An op that the interpreter itself carries out.

    Attributes:
        apply: function of (scope, node, inputs), where inputs are what stands on the edges, handles too.
        writes: whether it may write to a variable that it takes.
    """

    apply: Callable[..., Any]
    writes: bool = False


Row = Any  # Rule, Update or Effect
