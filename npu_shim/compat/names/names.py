"""Resolves TensorFlow 1's names that are elsewhere now, by one table (names.json).

A row is `"name": "target"`. A target is a dotted name, where "tf." is TensorFlow's v1 API, "contrib." is
npu_shim.compat.contrib and "src." is what lies behind tf.keras; or "!" and a sentence, for what is not here and what
to use instead.

    contrib   by module of tf.contrib: what its names mean
    modules   modules of tf.contrib that another package has as they are
    files     what the files in a module's `python` folder, or beside it, were called in 1.15; each shows the module's
              names
    moved     names of TensorFlow (modules, or names in them) that have moved since 1.15
    everything  modules of TensorFlow that had all names of others in 1.15
    keras, keras_names  see one_keras
    homes     parts of the v1 API that lie outside of it: where they may lie, first come first served
    packages  how to install what a target needs; [EXTRA] is one of npu-shim's own

Nothing here imports TensorFlow or runs a user's code, but `load`.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from typing import Any

from npu_shim.compat.names import exports
from npu_shim.configs import extras
from npu_shim.rewriter.errors import closest

V1 = "tensorflow._api.v2.compat.v1"
CONTRIB = "tensorflow.contrib"
OURS = "npu_shim.compat.contrib"


@functools.lru_cache(maxsize=None)
def table() -> dict[str, dict[str, Any]]:
    """The rows of names.json."""
    with open(os.path.join(os.path.dirname(__file__), "names.json"), encoding="utf-8") as f:
        rows: dict[str, dict[str, Any]] = json.load(f)
        return rows


def resolve(name: str) -> str | None:
    """Where a name of TensorFlow 1 is, under the installed TensorFlow and `npu-shim run`.

    Args:
        name: str, "tensorflow.contrib.rnn.LSTMCell" or "tf.contrib.rnn.LSTMCell". A class's own attributes are not
            checked.

    Returns:
        str, the dotted name that the script gets, or None if there is nothing; `explain` then says why.
    """
    name = _full(name)
    if tensorflow_1() or not name.startswith(CONTRIB):
        return _in_tensorflow(name)
    path = name[len(CONTRIB) + 1 :]
    if not path or is_module(path):
        return name
    target = contrib_target(path)
    return target if target and not target.startswith("!") and _has(target) else None


def nearest(name: str) -> str | None:
    """The nearest existing name to `name`, as "tf. ...", or None."""
    name = _full(name)
    module, _, last = name.rpartition(".")
    if name.startswith(CONTRIB + "."):
        close = _nearest_in_contrib(name[len(CONTRIB) + 1 :])
    else:
        known = _public(_real_module(module) or module)
        likely = closest(last, known)
        close = module + "." + likely if likely else None
    # never the name itself, nor one that is not here either
    return _short(close) if close and close != name and resolve(close) else None


def explain(name: str) -> str:
    """One sentence that says why a name is not here, and the nearest that is."""
    name = _full(name)
    target = contrib_target(name[len(CONTRIB) + 1 :]) if name.startswith(CONTRIB + ".") else moved(name)
    if target and target.startswith("!"):
        return "%s is not here: %s" % (_short(name), target[1:].strip())
    package = full_target(target).split(".")[0] if target else ""
    if package in table()["packages"] and exports.file_of(package) is None:
        how: str = table()["packages"][package]
        if how.startswith("["):
            how = extras.pip_install(how.strip("[]"))
        return "%s needs %s: %s" % (_short(name), package, how)
    if target and resolve(name) is None:
        return "%s is %s, which this TensorFlow does not have" % (_short(name), target)
    close = nearest(name)
    return "%s is not here%s" % (_short(name), " (did you mean '%s'?)" % close if close else "")


def load(target: str) -> Any:
    """The object or module behind a target of the table.

    Raises:
        ImportError: its module cannot be imported.
        AttributeError: its module has no such name.
    """
    if target.startswith("tf."):
        module, rest = "tensorflow.compat.v1", target[3:].split(".")
    else:
        module, rest = "", full_target(target).split(".")
        while rest and exports.file_of(".".join(filter(None, [module, rest[0]]))):
            module = ".".join(filter(None, [module, rest.pop(0)]))
    owner = importlib.import_module(module or target)
    return functools.reduce(getattr, rest, owner)


def contrib_target(path: str) -> str | None:
    """The target of a name below tf.contrib ("rnn.LSTMCell"), or None; what follows a name stays behind its target."""
    rows, parts = table()["contrib"], path.split(".")
    for cut in range(len(parts), 0, -1):  # the longest row counts, of a name or of a module
        own = rows.get(space(".".join(parts[: cut - 1])), {}).get(parts[cut - 1]) if cut > 1 else None
        target = own or table()["modules"].get(".".join(parts[:cut]))
        if target:
            return target if target.startswith("!") else ".".join([target, *parts[cut:]])
    whole: str | None = rows.get(parts[0], {}).get("*")
    return whole


def space(module: str) -> str:
    """Whose rows a module of tf.contrib shows: "seq2seq.python.ops.helper" has the names of "seq2seq"."""
    rows, parts = table()["contrib"], module.split(".")
    if module in rows or not _below(parts):
        return module
    inner = ".".join([parts[0], parts[-1]])
    return inner if inner in rows else parts[0]


def is_module(path: str) -> bool:
    """Whether a path below tf.contrib is one of our own faces: a module that shows rows of the table."""
    rows, parts = table()["contrib"], path.split(".")
    if path in rows or not _below(parts) or parts[0] not in rows:
        return path in _contrib_modules()
    # "layers.python.layers" has the names of "layers"; a file below it may be another package's
    depth = len(parts) - parts.index("python") if "python" in parts else 3
    if depth <= 2:
        return True
    if depth > 3 and parts[-1] == parts[-2]:  # what a file is named for: "nn.python.ops.alpha_dropout.alpha_dropout"
        return False
    return _is_file(parts) and _real_contrib_module(path) is None


def _below(parts: list[str]) -> bool:
    """Whether a path below tf.contrib is inside of its package: below `python`, or a file beside it."""
    beside = len(parts) == 2 and _is_file(parts) and parts[1] not in table()["contrib"].get(parts[0], {})
    return "python" in parts or beside


def _is_file(parts: list[str]) -> bool:
    return parts[-1] in table()["files"].get(parts[0], "").split()


@functools.lru_cache(maxsize=None)
def _contrib_modules() -> set[str]:
    """Modules that have rows, and their parent modules: "compiler" for "compiler.xla"."""
    rows, whole = table()["contrib"], table()["modules"]
    parts = [module.split(".") for module in (*rows, *whole)]
    above = {".".join(p[:cut]) for p in parts for cut in range(1, len(p))}
    return {*rows, *(above - set(whole))}


def _real_contrib_module(path: str) -> str | None:
    target = contrib_target(path)
    return target if target and not target.startswith("!") and exports.file_of(full_target(target)) else None


def real_module(path: str) -> str | None:
    """The module of another package that a module path of tf.contrib means, or None: "slim.nets" -> "tf_slim.nets"."""
    return None if is_module(path) else _real_contrib_module(path)


def full_target(target: str) -> str:
    """A target as a dotted Python name, for `exports`; "src." is the inside of the Keras 2 that tf.keras is."""
    if target.startswith("contrib."):
        return OURS + target[len("contrib") :]
    if target.startswith("src."):
        return home(V1 + ".keras").split(".")[0] + "." + target
    return home(V1 + target[2:]) if target.startswith("tf.") else target


def home(name: str) -> str:
    """A name of the v1 API, where it lies: "...compat.v1.keras.layers" -> "keras.api._v1.keras.layers"."""
    for prefix, places in table()["homes"].items():
        if (name + ".").startswith(prefix + "."):
            for place in places:
                if exports.file_of(place):
                    return str(place) + name[len(prefix) :]
    return name


def public_names(path: str) -> list[str]:
    """Sorted list of str: the names that a module of tf.contrib shows under the installed packages."""
    rows = table()["contrib"].get(space(path), {})
    names = {n for n, target in rows.items() if n != "*" and not target.startswith("!") and _has(target)}
    whole = table()["modules"].get(space(path))
    return sorted(names | (_public(whole) if whole else set()))


@functools.lru_cache(maxsize=None)
def tensorflow_1() -> bool:
    """Whether the installed TensorFlow is a 1.x, which has the real tf.contrib."""
    return exports.file_of("tensorflow.contrib") is not None


def _in_tensorflow(name: str) -> str | None:
    real = _real_module(name)
    if real:
        return real
    target = moved(name)
    return full_target(target) if target and _has(target) else None


def moved(name: str) -> str | None:
    """The target of a name of TensorFlow that has moved, or None; the longest row that fits counts."""
    rows, parts = table()["moved"], name.split(".")
    for cut in range(len(parts), 0, -1):
        target = rows.get(".".join(parts[:cut]))
        if target:
            return ".".join([target, *parts[cut:]])
    return None


def _real_module(name: str) -> str | None:
    """A name of TensorFlow as `exports` can read it: in the v1 API first, then in the package itself."""
    if tensorflow_1():
        return name if exports.has(home(name)) else None
    v1 = home(V1 + name[len("tensorflow") :])
    return v1 if exports.has(v1) else (name if exports.has(name) else None)


def _has(target: str) -> bool:
    return exports.has(full_target(target))


def _public(module: str) -> set[str]:
    return {name for name in exports.exported(module) if not name.startswith(("_", "*"))}


def _nearest_in_contrib(path: str) -> str | None:
    rows = table()["contrib"]
    parts = path.split(".")
    if space(parts[0]) not in rows and parts[0] not in table()["modules"]:
        close = closest(parts[0], rows)
        return CONTRIB + "." + ".".join([close, *parts[1:]]) if close else None
    module = parts[0] if len(parts) == 1 else ".".join(parts[:-1])
    known = public_names(module)
    # the same name in another module is nearer than a like one
    for other in sorted(rows, key=lambda module: (module.startswith("legacy"), module)):
        if not rows[other].get(parts[-1], "!").startswith("!"):
            return ".".join([CONTRIB, other, parts[-1]])
    close = closest(parts[-1], known)
    return ".".join([CONTRIB, module, close]) if close else None


def _full(name: str) -> str:
    return "tensorflow" + name[2:] if name == "tf" or name.startswith("tf.") else name


def _short(name: str) -> str:
    return "tf" + name[len("tensorflow") :] if name.startswith("tensorflow") else name
