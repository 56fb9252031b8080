"""Names for function bodies that no other step of the process has: eager mode keeps one library for all of them."""

import hashlib

PREFIX = "_functionalize_"  # of what FunctionalizeControlFlow makes, which counts from 0 for every graph


def unique(graph_def):
    """Renames the bodies that FunctionalizeControlFlow made, by what the graph is, in a GraphDef that is changed."""
    digest = hashlib.sha256(graph_def.SerializeToString(deterministic=True)).hexdigest()[:16]
    functions = graph_def.library.function
    names = {f.signature.name: "%s_%s" % (f.signature.name, digest) for f in functions}
    names = {name: new for name, new in names.items() if name.startswith(PREFIX)}
    for function in functions:
        function.signature.name = names.get(function.signature.name, function.signature.name)
    for nodes in [graph_def.node, *(function.node_def for function in functions)]:
        for node in nodes:
            node.op = names.get(node.op, node.op)
            for value in node.attr.values():
                for called in [value.func] if value.HasField("func") else value.list.func:
                    called.name = names.get(called.name, called.name)
    return graph_def
