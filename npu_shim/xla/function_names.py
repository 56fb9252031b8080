"""Names for function bodies that no other step of the process has: eager mode keeps one library for all of them."""

from __future__ import annotations

import hashlib
from typing import Any, Iterable, Sequence


def unique(graph_def: Any) -> Any:
    """Renames the functions of a GraphDef, which is changed, by what the graph is; returns it."""
    library = graph_def.library
    digest = hashlib.sha256(graph_def.SerializeToString(deterministic=True)).hexdigest()[:16]
    names = rename(library.function, graph_def.node, digest)
    for gradient in library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
    return graph_def


def rename(functions: Sequence[Any], nodes: Iterable[Any], suffix: str) -> dict[str, str]:
    """Puts "_suffix" behind the names of FunctionDefs, there and where nodes or functions call them, in place.

    Returns:
        Dict of old name to new.
    """
    names = {f.signature.name: "%s_%s" % (f.signature.name, suffix) for f in functions}
    for function in functions:
        function.signature.name = names[function.signature.name]
    for body in [nodes, *(function.node_def for function in functions)]:
        for node in body:
            node.op = names.get(node.op, node.op)
            for value in node.attr.values():
                for called in [value.func] if value.HasField("func") else value.list.func:
                    called.name = names.get(called.name, called.name)
    return names
