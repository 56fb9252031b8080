"""What writes to a variable: the nodes that take its handle, or its reference, and do more than read or pass it on.

v:VarHandleOp r:ReadVariableOp(v) i:Identity(v) w:AssignVariableOp(i, x) f:While{body=@g}(v)     w writes, f if g does
v:VariableV2  r:Identity(v)       i:RefIdentity(v) w:Assign(i, x)                                w writes
"""

from __future__ import annotations

from typing import Any, Iterator

from ..ir.attributes import Callee
from ..ir.definitions import expanded
from ..ir.graph import Graph, Node
from ..ir.module import Function
from . import order
from .cache import analysis_of_calls

# ops that take a handle and write nothing
READS = frozenset(["ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"])
PASSES_ON = frozenset(["Identity", "IdentityN", "Switch", "Merge", "Enter", "Exit", "NextIteration"])
REFERENCES = frozenset(["VariableV2", "Variable"])
# ops that pass on a reference, and one that only asks of it
REFERS = frozenset(["RefIdentity", "RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"])
ASKS = frozenset(["IsVariableInitialized"])
BRANCHES = frozenset(["If", "StatelessIf", "Case"])  # their first input chooses, and is no argument


@analysis_of_calls
def written(graph: Graph) -> list[Node]:
    """The handles and reference variables of a graph whose variables may be written."""
    handles = [node for node in graph if node.op == "VarHandleOp" and _is_written(node, frozenset())]
    return handles + [node for node in graph if node.op in REFERENCES and _is_assigned(node)]


def writes(node: Node, handle: Node) -> bool:
    """Whether a node that takes the handle of a variable may write to it, in a function that it calls too."""
    return _writes(node, handle, frozenset())


def _writes(node: Node, handle: Node, asked: frozenset[Node]) -> bool:
    """Likewise; `asked` are the arguments that are being asked about: a function that calls itself adds nothing."""
    if node.op in READS or node.op in PASSES_ON:
        return False
    bodies = list(_called(node))
    if not bodies:
        return any(value.node is handle for value in node.inputs)
    taken = node.inputs[1:] if node.op in BRANCHES else node.inputs
    pairs = (pair for body in bodies for pair in zip(body.arguments, taken))
    arguments = [argument for argument, value in pairs if value.node is handle and argument not in asked]
    return any(_is_written(argument, asked | {argument}) for argument in arguments)


def _is_written(handle: Node, asked: frozenset[Node]) -> bool:
    """Whether a node of its graph writes to what is a handle, or the same handle behind nodes that pass it on."""
    same = order.descendants([handle], lambda node: node is handle or node.op in PASSES_ON)
    passing = (node for node in same if node is handle or node.op in PASSES_ON)
    return any(_writes(user, node, asked) for node in passing for user in node.users())


def _is_assigned(variable: Node) -> bool:
    """Whether a node of its graph takes a variable's reference to write to it."""
    same = order.descendants([variable], lambda node: node is variable or node.op in REFERS)
    passing = (node for node in same if node is variable or node.op in REFERS)
    return any(_assigns(user, node) for node in passing for user in node.users())


def _assigns(user: Node, reference: Node) -> bool:
    definition = None if user.op in REFERS or user.op in ASKS else user.graph.module.definition(user.op)
    if definition is None:
        return False
    taken = zip(user.inputs, expanded(definition.inputs, user, definition))
    return any(value.node is reference and argument.is_ref for value, (argument, _) in taken)


def called(node: Node) -> list[str]:
    """The names of the functions that a node calls, by its op or its attributes."""
    functions = node.graph.module.functions
    names = [node.op, *(name for _, value in node.attrs.items() for name in _named(value))] if len(functions) else ()
    return [name for name in names if name in functions]


def _called(node: Node) -> Iterator[Function]:
    return (node.graph.module.functions[name] for name in called(node))


def _named(value: Any) -> list[str]:
    callees = value if type(value) is tuple else (value,)
    return [callee.name for callee in callees if isinstance(callee, Callee)]
