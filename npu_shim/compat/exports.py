"""What a module exports, read from its source: nothing is imported, no code runs."""

import ast
import functools
import importlib.util
import os
import re
import sys


def has(name):
    """Whether a dotted name can be reached, by reading sources only.

    Args:
        name: str such as "tensorflow.python.ops.nn.conv2d". What follows a class or a function is taken on trust.

    Returns:
        bool.
    """
    return locate(name) is not None


def locate(name):
    """Returns (module, rest): the module that defines what a dotted name means, and the name inside it; or None.

    `rest` is "" for a module. `None` also when the package of the name is not installed.
    """
    module, rest = "", name.split(".")
    while rest and file_of(".".join(filter(None, [module, rest[0]]))):
        module = ".".join(filter(None, [module, rest.pop(0)]))
    return _follow(module, rest, set()) if module else None


def _follow(module, rest, seen):
    if not rest:
        return module, ""
    if (module, rest[0]) in seen:
        return None
    seen.add((module, rest[0]))
    names = exported(module)
    if rest[0] not in names:
        protos = [module, *(origin for name, origin in names.items() if name.startswith("*"))]
        return next(((proto, ".".join(rest)) for proto in protos if _declared(proto, rest[0])), None)
    origin = names[rest[0]]
    if origin is None:
        return module, ".".join(rest)
    found = locate(origin) if not origin.startswith(module + ".") or file_of(origin) else _inner(origin, seen)
    if found is None:  # from compiled or built-in code
        above = origin.rpartition(".")[0]
        return None if above and file_of(above) else (module, ".".join(rest))
    return (found[0], ".".join([found[1], *rest[1:]])) if found[1] else _follow(found[0], rest[1:], seen)


@functools.lru_cache(maxsize=None)
def _declared(module, name):
    """Whether a module that protoc has written makes a name at run time: its descriptor spells it."""
    if not module.endswith("_pb2"):
        return False
    # in front stands its length, perhaps "\\n" or "\\x0f"; behind that, a letter may be escaped: "\\x07\\x45xample"
    spelled = "".join(r"(?:%s|\\x%02x)" % (letter, ord(letter)) for letter in name)
    begins = r"(?:(?<![A-Za-z_])|(?<=\\[a-z])|(?<=\\x[0-9a-f]{2}))"
    with open(file_of(module), encoding="utf-8", errors="replace") as f:
        return re.search(begins + spelled + "(?![A-Za-z_])", f.read()) is not None


def _inner(origin, seen):
    module, _, name = origin.rpartition(".")
    return _follow(module, [name], seen)


@functools.lru_cache(maxsize=None)
def file_of(module):
    """The source file of a module by its dotted name, or None; packages above it are not imported.

    A folder without a source file, or a compiled module, is None.
    """
    top, *inner = module.split(".")
    for folder in _folders(top):
        path = os.path.join(folder, *inner)
        for file in (os.path.join(path, "__init__.py"), path + ".py" if inner else path):
            if os.path.isfile(file):
                return file
    return None


@functools.lru_cache(maxsize=None)
def _folders(top):
    """Folders (or the one file) of a top-level package."""
    loaded = sys.modules.get(top)
    spec = getattr(loaded, "__spec__", None) if loaded is not None else importlib.util.find_spec(top)
    if spec is None or spec.origin in (None, "built-in", "frozen"):
        return ()
    if spec.submodule_search_locations is None:
        return (spec.origin,)
    folders = list(spec.submodule_search_locations)
    # TensorFlow 1.15: what `import tensorflow` gives lies in tensorflow_core
    core = [os.path.join(os.path.dirname(f), "tensorflow_core") for f in folders if top == "tensorflow"]
    return (*(f for f in core if os.path.isdir(f)), *folders)


@functools.lru_cache(maxsize=None)
def exported(module):
    """{name: dotted origin, or None for what the module defines itself} of a module's source, submodules included.

    A name that begins with "*" stands for all names of a module that protoc has written.
    """
    file = file_of(module)
    if file is None:
        return {}
    names = {name: module + "." + name for name in _submodules(file)}
    with open(file, "rb") as f:
        body = ast.parse(f.read(), file).body
    for statement in _statements(body):
        names.update(_bound(statement, module, os.path.basename(file) == "__init__.py"))
    return names


def _submodules(file):
    if os.path.basename(file) != "__init__.py":
        return
    for entry in os.listdir(os.path.dirname(file)):
        if entry.endswith(".py") and entry != "__init__.py":
            yield entry[:-3]
        elif os.path.isfile(os.path.join(os.path.dirname(file), entry, "__init__.py")):
            yield entry


def _statements(body):
    """The statements of a module's top level, those inside its if, try and with blocks too."""
    for statement in body:
        yield statement
        for block in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _statements(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)


def _bound(statement, module, package):
    """{name: origin or None} that one statement binds."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name: None}
    if isinstance(statement, ast.Import):
        return {a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in statement.names}
    if isinstance(statement, ast.ImportFrom):
        return _imported_from(statement, module, package)
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return {}
    flat = [e for t in targets for e in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t])]
    return {t.id: None for t in flat if isinstance(t, ast.Name)}


def _imported_from(statement, module, package):
    source = statement.module or ""
    if statement.level:
        base = module.split(".")[: len(module.split(".")) - statement.level + (1 if package else 0)]
        source = ".".join([*base, source] if source else base)
    names = {}
    for alias in statement.names:
        if alias.name == "*":
            names.update({n: source + "." + n for n in exported(source) if not n.startswith(("_", "*"))})
            names.update({n: origin for n, origin in exported(source).items() if n.startswith("*")})
            if source.endswith("_pb2"):  # its names are made at run time
                names["*" + source] = source
        else:
            names[alias.asname or alias.name] = source + "." + alias.name
    return names
