"""Names of functions: unique in the process, as eager mode keeps one library for all steps, and the same in each."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Iterable, Iterator, Mapping, Sequence

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module


def uniquify(module: Module, context: Any = None) -> None:
    """Appends a hash of the module to its functions' names."""
    source = graphdef.write(module)
    if not source.library.function:
        return
    digest = hashlib.sha256(source.SerializeToString(deterministic=True)).hexdigest()[:16]
    copy = type(source)()
    copy.CopyFrom(source)
    names = rename(copy.library.function, copy.node, digest)
    for gradient in copy.library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
    graphdef.replace(module, copy)


def rename(functions: Sequence[Any], nodes: Iterable[Any], suffix: str) -> dict[str, str]:
    """Appends "_suffix" to the names of FunctionDefs and to all calls of them, in place.

    Returns:
        Dict from old name to new.
    """
    names = {f.signature.name: "%s_%s" % (f.signature.name, suffix) for f in functions}
    _apply(names, functions, nodes)
    return names


def ordered(graph_def: Any, before: Any) -> Any:
    """Puts what a conversion has added into an order that depends on names alone, in place; returns the GraphDef.

    TensorFlow's conversion of loops and conditionals adds nodes and numbers functions in the order of its hash tables,
    another one in each process. A program made of that would be another one each time.

    Args:
        graph_def: tf.compat.v1.GraphDef.
        before: that before the conversion, whose nodes and functions keep their order and names.
    """
    place = {node.name: number for number, node in enumerate(before.node)}
    graph_def.node.sort(key=lambda node: (place.get(node.name, len(place)), node.name))
    library = graph_def.library.function
    remaining = {function.signature.name: function for function in library}
    for function in before.library.function:
        remaining.pop(function.signature.name, None)
    names: dict[str, str] = {}
    for name in _called(graph_def.node, remaining, set()):
        names[name] = "%s_ordered_%d" % (re.sub(r"_\d+$", "", name), len(names))
    _apply(names, library, graph_def.node)
    library.sort(key=lambda function: function.signature.name)
    return graph_def


def _called(nodes: Iterable[Any], bodies: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """Yields the names of functions of `made` in the order of their calls, and sorts their bodies."""
    for node in nodes:
        named = [node.op, *(function.name for key in sorted(node.attr) for function in _functions_of(node.attr[key]))]
        for name in named:
            if name in bodies and name not in seen:
                seen.add(name)
                yield name
                bodies[name].node_def.sort(key=lambda inner: inner.name)
                yield from _called(bodies[name].node_def, bodies, seen)


def _functions_of(value: Any) -> Sequence[Any]:
    """The NameAttrLists of an attribute's value."""
    functions: Sequence[Any] = [value.func] if value.HasField("func") else value.list.func
    return functions


def _apply(names: Mapping[str, str], functions: Iterable[Any], nodes: Iterable[Any]) -> None:
    """Renames functions, and all calls of them, in place."""
    functions = list(functions)
    for function in functions:
        function.signature.name = names.get(function.signature.name, function.signature.name)
    for body in [nodes, *(function.node_def for function in functions)]:
        for node in body:
            node.op = names.get(node.op, node.op)
            for value in node.attr.values():
                for called in _functions_of(value):
                    called.name = names.get(called.name, called.name)
