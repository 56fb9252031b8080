"""What conditions and guards of a script ask: Python's version, a name that may be missing, being the script."""

import ast
import sys
import types
from typing import Any, Optional

_MISSING_NAME = ("ImportError", "ModuleNotFoundError", "AttributeError")


def is_constant(node: ast.AST) -> bool:
    """Whether a node is a number, a string or another constant; Python 3.7 has a class for each kind."""
    return isinstance(node, ast.Constant) or type(node).__name__ in ("Num", "Str", "Bytes", "NameConstant")


def constant(node: ast.AST) -> Any:
    """The value of a number, a string or another constant; None for any other node."""
    # Python 3.12 warns of the old names when it is only asked for them
    field = next((name for name in ("value", "s", "n") if is_constant(node) and hasattr(node, name)), None)
    return getattr(node, field) if field else None


def may_miss_a_name(node: ast.Try) -> bool:
    """Whether a `try` is there because a name may be missing."""
    if not node.handlers:
        return False
    plain = all(isinstance(s, (ast.Import, ast.ImportFrom, ast.Assign)) for s in node.body)
    caught = [name.id for h in node.handlers if h.type for name in ast.walk(h.type) if isinstance(name, ast.Name)]
    return plain or any(name in _MISSING_NAME for name in caught)


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether an `except` catches whatever may happen."""
    return handler.type is None or (isinstance(handler.type, ast.Name) and handler.type.id == "Exception")


def is_main(test: ast.AST) -> bool:
    """Whether a condition is `__name__ == "__main__"`."""
    return isinstance(test, ast.Compare) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(test))


_PLAIN = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Tuple, ast.Slice),
    *(ast.Load, ast.cmpop, ast.boolop, ast.unaryop),
)


def of_python(test: ast.expr) -> Optional[bool]:
    """What a condition that asks for Python's own version says (of sys.version_info, or six), or None."""
    nodes = [node for node in ast.walk(test) if type(node).__name__ != "Index" and not is_constant(node)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    if not names or not names <= {"sys", "six"} or not attributes <= {"version_info", "major", "minor", "PY2", "PY3"}:
        return None
    if not all(isinstance(node, _PLAIN) for node in nodes):
        return None
    six = types.SimpleNamespace(PY2=False, PY3=True)
    try:  # names, attributes of these two, and comparisons: nothing of the script runs
        code = compile(ast.Expression(test), "<condition>", "eval")
        return bool(eval(code, {"sys": sys, "six": six, "__builtins__": {}}))
    except Exception:
        return None
