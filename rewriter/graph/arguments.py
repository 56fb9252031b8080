"""Inputs and outputs of a NodeDef: the tensors that they name, and what its op's definition says of each."""

from __future__ import annotations

from typing import Any, Iterable, Iterator


def of_each(arguments: Iterable[Any], node: Any) -> Iterator[Any]:
    """Yields the argument definition of each tensor.

    Args:
        arguments: `input_arg` or `output_arg` of an OpDef.
        node: a NodeDef of that op.
    """
    for argument, _ in _expand(arguments, node):
        yield argument


def dtypes(arguments: Iterable[Any], node: Any) -> list[int]:
    """Returns the dtype of each tensor, as a number of the DataType enum; arguments as for `of_each`."""
    return [dtype for _, dtype in _expand(arguments, node)]


def data(node: Any) -> list[str]:
    """Returns a node's data inputs, in order."""
    return [text for text in node.input if text[0] != "^"]


def controls(node: Any) -> list[str]:
    """Returns a node's control inputs, in order."""
    return [text for text in node.input if text[0] == "^"]


def source_of(text: str) -> str:
    """Name of the node that an input names."""
    return text.lstrip("^").partition(":")[0]


def tensor_of(text: str) -> str:
    """A data input with the number of its output, as TensorFlow names tensors."""
    return text if ":" in text else text + ":0"


def output_of(text: str) -> tuple[str, int]:
    """(name of the node, number of its output) that a data input names."""
    name, _, number = text.partition(":")
    return name, int(number or 0)


def _expand(arguments: Iterable[Any], node: Any) -> Iterator[tuple[Any, int]]:
    for argument in arguments:
        if argument.type_list_attr:
            for dtype in node.attr[argument.type_list_attr].list.type:
                yield argument, dtype
            continue
        dtype = node.attr[argument.type_attr].type if argument.type_attr else argument.type
        for _ in range(node.attr[argument.number_attr].i if argument.number_attr else 1):
            yield argument, dtype
