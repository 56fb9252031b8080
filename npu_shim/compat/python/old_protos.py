"""Lets protobuf 4 and later import the `_pb2.py` files that protoc wrote before 3.19, such as those of 2019's models.

Such a file registers its serialized descriptor, and then builds an object for each message and field anew, which
protobuf 4.21 refuses. Here the file's imports run, and protobuf builds the rest from what is registered, as it does for
the files that protoc writes today:

    DESCRIPTOR = _descriptor.FileDescriptor(serialized_pb=..)     DESCRIPTOR = registered(.., globals())
    _BOX = _descriptor.Descriptor(..)                     ->
    Box = _reflection.GeneratedProtocolMessageType(..)
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import re
import sys
from typing import Any, Callable, Iterator

END = "_pb2"  # of the names of modules that protoc writes
OLD = re.compile(rb"^DESCRIPTOR = _descriptor\.FileDescriptor\(", re.MULTILINE)  # today's have AddSerializedFile there
KEPT = (ast.Import, ast.ImportFrom, ast.Try, ast.FunctionDef)  # what protoc writes for gRPC, and public imports
REGISTERED = "_npu_shim_registered"  # name of `registered` in such a module


def install(say: Callable[[str], None]) -> None:
    """Has such files read from now on; a second call does nothing.

    Args:
        say: function that logs a line about the first one.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(say))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, say: Callable[[str], None]) -> None:
        self._say: Callable[[str], None] | None = say

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.endswith(END):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        own = spec.loader if spec is not None else None
        if spec is None or not isinstance(own, importlib.machinery.SourceFileLoader):
            return None
        if not _is_old(own.get_data(own.path)):
            return None
        if self._say is not None:
            text = "%s is a file of protoc before 3.19, which protobuf 4.21 refuses: its serialized form is read here"
            self._say(text % fullname)
            self._say = None
        spec.loader = _Loader(own.name, own.path)
        return spec


def _is_old(source: bytes) -> bool:
    """Whether a source is of an old protoc, and protobuf refuses it: its implementation in Python alone does not."""
    if not OLD.search(source):
        return False
    from google.protobuf import __version__
    from google.protobuf.internal import api_implementation

    return api_implementation.Type() != "python" and int(__version__.split(".")[0]) >= 4


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:  # without the cache of bytecode, which plain Python reads too
        tree = ast.parse(self.get_data(self.path), self.path)
        tree.body = list(_kept(tree.body))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        vars(module)[REGISTERED] = registered
        super().exec_module(module)
        del vars(module)[REGISTERED]


def _kept(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a file without those that build what protobuf builds itself."""
    is_registered = False
    for statement in statements:
        content = _serialized(statement)
        if content is not None:
            is_registered = True
            yield ast.fix_missing_locations(ast.copy_location(_registration(content), statement))
        elif not is_registered or isinstance(statement, KEPT) or _is_of_service(statement):
            yield statement


def _registration(content: ast.expr) -> ast.stmt:
    target = ast.Name("DESCRIPTOR", ast.Store())
    names = ast.Call(ast.Name("globals", ast.Load()), [], [])
    call = ast.Call(ast.Name(REGISTERED, ast.Load()), [content, names], [])
    return ast.Assign([target], call)


def _is_of_service(statement: ast.stmt) -> bool:
    """Whether a statement is a class of gRPC; those of messages are of protobuf's own."""
    return isinstance(statement, ast.ClassDef) and "Message" not in "".join(map(ast.dump, statement.bases))


def _serialized(statement: ast.stmt) -> ast.expr | None:
    """The serialized form that the statement which makes the file's descriptor has; None for another one."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(value, ast.Call) or getattr(value.func, "attr", "") != "FileDescriptor":
        return None
    return next(keyword.value for keyword in value.keywords if keyword.arg == "serialized_pb")


def registered(content: Any, names: dict[str, Any]) -> Any:
    """Registers a serialized FileDescriptorProto, puts what it describes into a module, and returns its descriptor.

    Args:
        content: bytes; str of Latin-1 from a protoc for Python 2.
        names: the module's.
    """
    from google.protobuf import descriptor_pool
    from google.protobuf.internal import builder

    data = content.encode("latin1") if isinstance(content, str) else content
    descriptor = descriptor_pool.Default().AddSerializedFile(data)
    builder.BuildMessageAndEnumDescriptors(descriptor, names)
    builder.BuildTopDescriptorsAndMessages(descriptor, names["__name__"], names)
    if descriptor.services_by_name and hasattr(builder, "BuildServices"):
        builder.BuildServices(descriptor, names["__name__"], names)
    return descriptor
