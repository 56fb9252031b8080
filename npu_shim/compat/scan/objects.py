"""What methods and attributes the objects of TensorFlow have, asked of the installed classes; no script runs.

A constructor gives its class. What functions, methods and attributes give stands in `results.json`, which
`scripts/compare_versions --results` writes from runs of TensorFlow 1.15.5 and 2.
"""

from __future__ import annotations

import dis
import functools
import json
import os
import types
from typing import Any, Callable, Iterator, Mapping, NamedTuple


class Object(NamedTuple):
    """An object, as far as it is known.

    Attributes:
        path: str, the dotted name of its class.
        kinds: classes, any of which it may be of.
    """

    path: str
    kinds: tuple[type, ...]


class Member(NamedTuple):
    """A method or an attribute, by name, of an object or of its class."""

    owner: Object
    name: str


def has(owner: Object, name: str) -> bool:
    """Whether an object has a public method or attribute of this name; True where that cannot be known."""
    return name.startswith("_") or any(_answers_any(kind) or name in members(kind) for kind in owner.kinds)


@functools.lru_cache(maxsize=None)
def members(kind: type) -> frozenset[str]:
    """The names that a class shows, and those of the attributes that its methods set."""
    stored = (_stored(function.__code__) for base in kind.__mro__ for function in _functions(base))
    return frozenset(dir(kind)).union(_fields(kind), *stored)


def constructed(kind: Any, path: str) -> Object:
    """What a constructor gives; one with a `__new__` of its own may give what derives from its class."""
    kind = _as_made(kind)
    is_plain = type(kind) is type and getattr(kind, "__new__", None) is object.__new__
    return Object(path, (kind,) if is_plain else with_derived(kind))


def result(member: Member, ending: str, table: Mapping[Any, Object]) -> Object | None:
    """What an attribute holds (ending ""), or what a method gives ("()"); None where that is not known.

    Args:
        member: the method or attribute.
        ending: str.
        table: (class, name + ending) -> Object. What a class has of its own is not what those above it have:
            `zero_state` of one RNN cell is another's. Of an object that may be of several classes the most general
            one counts.
    """
    message = None if ending else _message(member)
    if message is not None:
        return message
    kinds = [kind for kind in member.owner.kinds if member.name in members(kind)]
    general = [kind for kind in kinds if not any(base in kinds for base in kind.__mro__[1:])]
    key = member.name + ending  # a row of a class that a metaclass chooses from counts for the whole family
    known = [kind for kind in kinds if (kind, key) in table]
    rows = [next((table[other, key] for other in known if issubclass(other, kind)), None) for kind in general]
    answers = {_tabled(kind, member.name, ending, table) or row for kind, row in zip(general, rows)}
    answer = answers.pop() if len(answers) == 1 else None
    if answer and member.name == "__enter__" and all(issubclass(kind, answer.kinds[0]) for kind in member.owner.kinds):
        return member.owner  # itself, as `with` has it
    return answer


def functions(member: Member) -> list[Any]:
    """What stands under the name of a method in the classes that the object may be of."""
    return [getattr(kind, member.name, None) for kind in member.owner.kinds]


def with_derived(kind: type) -> tuple[type, ...]:
    """A class and all that are known to derive from it.

    Where its metaclass chooses what a call makes, as that of tf.Variable does, all classes of that metaclass count.
    """
    chooses = type(kind) is not type and "__call__" in vars(type(kind))
    family = [base for base in kind.__mro__ if chooses and type(base) is type(kind)]
    kinds: list[Any] = [kind, *family]
    for current in kinds:  # grows
        kinds += [derived for derived in type.__subclasses__(current) if derived not in kinds]
    return tuple(kinds)


def rows() -> dict[str, list[str]]:
    """The table: dotted name of a function, method ("...()") or attribute -> dotted names of classes."""
    with open(os.path.join(os.path.dirname(__file__), "results.json"), encoding="utf-8") as f:
        by_class: dict[str, list[str]] = json.load(f)
    rows: dict[str, list[str]] = {}
    for classes, names in by_class.items():
        rows.update(dict.fromkeys(names, classes.split()))
    return rows


def _as_made(kind: Any) -> Any:
    """The class of a class's objects: Keras chooses another base for them when the first is made in a graph."""
    if "keras" not in kind.__module__ or hasattr(kind, "__del__"):  # which wants an object that is whole
        return kind
    try:
        return type(kind.__new__(kind))
    except Exception:  # it wants arguments
        return kind


def _tabled(kind: type, name: str, ending: str, table: Mapping[Any, Object]) -> Object | None:
    """What the table says of a class's member; None also where the class has its own."""
    for base in kind.__mro__:
        if (base, name + ending) in table:
            return table[base, name + ending]
        if name in vars(base):
            return None
    return None


def _fields(kind: type) -> Mapping[str, Any]:
    """The fields of a protocol buffer by their names; none of another class."""
    fields: Mapping[str, Any] = getattr(getattr(kind, "DESCRIPTOR", None), "fields_by_name", {})
    return fields


def _message(member: Member) -> Object | None:
    """What a field of a protocol buffer holds, if that is one message."""
    for kind in member.owner.kinds:
        field = _fields(kind).get(member.name)
        if field is not None and field.message_type and not _is_repeated(field):
            return Object(field.message_type.full_name, (field.message_type._concrete_class,))
    return None


def _is_repeated(field: Any) -> bool:
    """Whether a field holds several values; protobuf has renamed the question."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


@functools.lru_cache(maxsize=None)
def _answers_any(kind: type) -> bool:
    """Whether objects of a class may have names that it does not show: HParams get theirs from the script."""
    for function in (function for base in kind.__mro__ for function in _functions(base)):
        name, code = function.__name__, function.__code__
        if name in ("__getattr__", "__getattribute__") and _returns(code):
            return True
        if (name == "__init__" or not name.startswith("_")) and {"setattr", "__dict__"} & set(code.co_names):
            return True
    return False


def _returns(code: types.CodeType) -> bool:
    """Whether a function returns anything but None."""
    before = None
    for step in dis.get_instructions(code):
        if step.opname == "RETURN_VALUE" and not (before and before.opname == "LOAD_CONST" and before.argval is None):
            return True
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return True
        before = step
    return False


def _functions(kind: type) -> Iterator[Callable[..., Any]]:
    """The functions that a class defines, and those behind its properties and decorators."""
    for value in vars(kind).values():
        waiting = [value]
        while waiting:
            current = waiting.pop()
            if isinstance(current, types.FunctionType):
                yield current
                current = vars(current).get("_tf_decorator", current)
            inner = ("__wrapped__", "__func__", "fget", "fset", "func", "decorated_target")
            waiting += [getattr(current, name) for name in inner if callable(getattr(current, name, None))]


def _stored(code: types.CodeType) -> set[str]:
    """The names of the attributes that a function sets."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}
    inner = (_stored(const) for const in code.co_consts if isinstance(const, types.CodeType))
    return names.union(*inner)
