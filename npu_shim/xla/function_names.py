"""Names for function bodies that no other step of the process has: eager mode keeps one library for all of them."""

import hashlib


def unique(graph_def):
    """Renames the functions of a GraphDef, which is changed, by what the graph is; returns it."""
    library = graph_def.library
    digest = hashlib.sha256(graph_def.SerializeToString(deterministic=True)).hexdigest()[:16]
    names = {f.signature.name: "%s_%s" % (f.signature.name, digest) for f in library.function}
    for function in library.function:
        function.signature.name = names[function.signature.name]
    for gradient in library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
    for nodes in [graph_def.node, *(function.node_def for function in library.function)]:
        for node in nodes:
            node.op = names.get(node.op, node.op)
            for value in node.attr.values():
                for called in [value.func] if value.HasField("func") else value.list.func:
                    called.name = names.get(called.name, called.name)
    return graph_def
