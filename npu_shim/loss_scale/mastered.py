"""16-bit variables that are their float32 masters while an optimizer updates them.

    with mastered([(w, master)]):
        w.dtype, w.handle, w.read_value(), w.assign(...)     the master's, in float32
        w, hash(w), w.name, w.op, w.constraint, slices       the variable's own, as its script knows it

So what a script has said of a variable holds for its update: by constraints, by names, in lists, sets and dicts. Slots
belong to the variable: `optimizer.get_slot(w, "m")` is w/Adam, in float32.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any, Iterable, Iterator

from npu_shim.rewriter.errors import ConfigError

# the attributes by which TensorFlow's variables read and write: reference variables, then resource variables
STORAGE = (
    "_variable", "_snapshot",
    "_handle", "_dtype", "_cached_value", "_graph_element", "_is_initialized_op",
    "_initial_value", "_initializer_op",
)  # fmt: skip
NOT_PLAIN = (
    "'%s' gets no float32 master (--master-weights): it is a %s, expected what tf.Variable or tf.get_variable makes"
)
KEPT = "_npu_shim_own"  # attribute of a variable that is its master: its own name and op


@contextlib.contextmanager
def mastered(pairs: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """Scope in which variables are their masters.

    Args:
        pairs: (variable, its master), of one kind: both reference or both resource variables.

    Raises:
        ConfigError: a variable is no plain one, such as a wrapper around another.
    """
    were = []
    try:
        for variable, master in pairs:
            _require_plain(variable, master)
            were.append((variable, type(variable), dict(vars(variable))))
            _become(variable, master)
        yield
    finally:
        for variable, kind, own in reversed(were):
            variable.__class__ = kind
            _take(variable, own)
            vars(variable).pop(KEPT, None)


def _require_plain(variable: Any, master: Any) -> None:
    plain = [name for name in STORAGE[:3] if name in vars(variable) and name in vars(master)]
    if not plain:
        raise ConfigError(NOT_PLAIN % (variable.name, type(variable).__name__))


def _become(variable: Any, master: Any) -> None:
    own = variable.name, variable.op
    variable.__class__ = _class_of(type(variable))
    _take(variable, vars(master))
    vars(variable)[KEPT] = own


def _take(variable: Any, source: Any) -> None:
    for name in STORAGE:
        if name in source:
            vars(variable)[name] = source[name]
        else:
            vars(variable).pop(name, None)


def _class_of(kind: Any) -> type:
    """The class of a variable that is its master: of the variable's kind, with the name and the op that it had."""
    members = {
        "name": property(lambda self: vars(self)[KEPT][0]),
        "op": property(lambda self: vars(self)[KEPT][1]),
    }
    return types.new_class(kind.__name__, (kind,), exec_body=lambda namespace: namespace.update(members))
