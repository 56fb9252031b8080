"""Makes function names unique in the process, as eager mode keeps one function library for all steps."""

from __future__ import annotations

import hashlib
from typing import Any, Iterable, Sequence


def unique(graph_def: Any) -> Any:
    """Appends a hash of the graph to its functions' names, in place; returns the GraphDef."""
    library = graph_def.library
    digest = hashlib.sha256(graph_def.SerializeToString(deterministic=True)).hexdigest()[:16]
    names = rename(library.function, graph_def.node, digest)
    for gradient in library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
    return graph_def


def rename(functions: Sequence[Any], nodes: Iterable[Any], suffix: str) -> dict[str, str]:
    """Appends "_suffix" to the names of FunctionDefs and to all calls of them, in place.

    Returns:
        Dict from old name to new.
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
