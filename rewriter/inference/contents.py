"""Shapes and values of container elements: one answer for all elements of a container, or none.

    "element"   the shape of the elements of a TensorList, or of those that an op writes into a TensorArray or Stack
    "content"   their value, for integer vectors

A TensorList is a value and passes from op to op. An element of a TensorArray or a Stack was written by one of its
writers, which links.py makes further inputs of its readers. In both cases one iteration may read what another has
written, so an answer may contain only numbers and symbols with a single value in the whole run.
"""

from typing import Dict

from ..tables.dtypes import NUMBERS
from .properties import NOTHING, Answer, Asker, Rule, Unknown

VARIANT = NUMBERS["variant"]
PASSED_ON = ("Identity", "Enter", "Exit", "Switch", "_SwitchN", "NextIteration", "TensorListResize")


def _of_input(what: str, number: int) -> Rule:
    """The answer about an input that is written whole."""
    return lambda a: a.lasting(a.get(what, number))


def _rows(number: int) -> Rule:
    """The shape of an input's rows, which are written one by one."""
    return lambda a: a.lasting(a.shape(number)[1:])


def _added(table: str, what: str, number: int) -> Rule:
    """Writes an element, or a nested list, into a list; for nested lists the innermost elements count."""

    def rule(a: Asker) -> Answer:
        of_lists = a.attr["element_dtype"].type == VARIANT
        held, new = a.get(table, 0), a.lasting(a.get(table if of_lists else what, number))
        return new if held in (NOTHING, new) else held if new == NOTHING else None

    return rule


def _read(table: str) -> Rule:
    """The result of a reader of a TensorArray or a Stack."""
    return lambda a: a.common(table, a.further)


def _of_list(a: Asker, table: str) -> Answer:
    held = a.get(table, 0)
    if held == NOTHING:
        raise Unknown
    return held


def _popped(table: str) -> Rule:
    """The element that TensorListPopBack returns; its first output is the list."""
    return lambda a: _of_list(a, table) if a.port.port == 1 else None


def _stacked(a: Asker) -> Answer:
    return (a.symbol(0), *a.common("element", a.further))


def _stacked_list(a: Asker) -> Answer:
    return (a.symbol(0), *(_of_list(a, "element") or ()))


def _list_rules(table: str) -> Dict[str, Rule]:
    """The rules for lists that both tables share."""
    return {
        **dict.fromkeys([*PASSED_ON, "TensorListPopBack", "TensorListGetItem"], lambda a: a.get(table, 0)),
        **dict.fromkeys(["EmptyTensorList", "TensorListReserve"], lambda a: NOTHING),
        "Merge": lambda a: a.common(table, range(a.inputs)),
    }


ELEMENTS: Dict[str, Rule] = {
    **_list_rules("element"),
    "StackPushV2": _of_input("shape", 1),
    "TensorArrayWriteV3": _of_input("shape", 2),
    "TensorArrayScatterV3": _rows(2),
    "TensorListPushBack": _added("element", "shape", 1),
    "TensorListSetItem": _added("element", "shape", 2),
    "TensorListFromTensor": _rows(0),
    "ZerosLike": lambda a: a.get("element", 0),
    "AddN": lambda a: a.common("element", range(a.inputs)),
}
CONTENTS: Dict[str, Rule] = {
    **_list_rules("content"),
    "StackPushV2": _of_input("value", 1),
    "TensorListPushBack": _added("content", "value", 1),
}
# results of readers, for the tables of shapes.py
SHAPES: Dict[str, Rule] = {
    "StackPopV2": _read("element"),
    "TensorArrayReadV3": _read("element"),
    "TensorArrayGatherV3": _stacked,
    "TensorListPopBack": _popped("element"),
    "TensorListGetItem": lambda a: _of_list(a, "element"),
    "TensorListStack": _stacked_list,
}
VALUES: Dict[str, Rule] = {"StackPopV2": _read("content"), "TensorListPopBack": _popped("content")}
