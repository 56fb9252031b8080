"""Records what the installed TensorFlow 1 API does, as JSON; `scripts/compare_versions` runs it in each environment.

    record.py OUT [--names REFERENCE] [--plain] [--results]

A script sees TensorFlow so: 1.15's Python runs this file, or `npu-shim run` does; --plain takes tf.compat.v1 as it is.
REFERENCE is the record of 1.15, whose names are asked for. What is called stands in shapes.txt, numbers.txt and
layers.txt, one expression a line; with --results, only the classes of what these and those of objects.txt give:

    T(2, 3)  a float32 tensor whose shape is, in turn, known, open in its first size, in all others, in all, in its rank
    I(2, 3)  the same with int32 indices below 2; B(2, 3) with booleans
    W(2, 3)  a float32 tensor of known shape
    S()      the int 2, which only a run knows
    N(4)     4, in turn, as the kinds of number below
"""

import argparse
import ast
import inspect
import json
import pathlib
import re
import sys
import types

import numpy as np
import public_names

if "--plain" in sys.argv:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
else:
    import tensorflow as tf

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = (
    *("contrib", "python", "core", "compiler", "compat.v1", "compat.v2", "tools", "examples", "include", "raw_ops"),
    *("pywrap_tensorflow", "flags.tf_decorator", "lite"),
)
FUTURE = ("absolute_import", "division", "print_function")
KINDS = {
    "int": "4",
    "whole float": "8 / 2",
    "fraction": "4.5",
    "np.int64": "np.int64(4)",
    "np.float32": "np.float32(4)",
    "np.float64": "np.float64(4)",
    "0-d array": "np.array(4)",
    "0-d float array": "np.array(4.0)",
    "1-element array": "np.array([4])",
    "Dimension": "tf.Dimension(4)",
    "Dimension // 2": "tf.Dimension(8) // 2",
    "Dimension * 1.0": "tf.Dimension(4) * 1.0",
    "True": "True",
    "text": "'4'",
    "None": "None",
    "tensor": "tf.constant(4)",
}


def main():
    """Writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--names")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--results", action="store_true")
    args = parser.parse_args()
    del sys.argv[1:]  # tf.flags parses them when it is asked for a name
    reference = json.loads(pathlib.Path(args.names).read_text())["signatures"] if args.names else None
    tf.logging.set_verbosity(tf.logging.ERROR)
    parts = {
        "signatures": lambda: asked(reference) if reference else walked(),
        "shapes": shapes,
        "numbers": numbers,
        "layers": layers,
        "values": values,
    }
    record = {name: dict(part()) for name, part in ({"results": results} if args.results else parts).items()}
    record["version"] = tf.__version__
    pathlib.Path(args.out).write_text(json.dumps(record, indent=0, sort_keys=True))


# Signatures


def walked():
    """{name: description} of all public names below tf, those of classes included."""
    return {name: text for path, value in public() for name, text in described(path, value)}


def public():
    """(name, value) of all public names below tf."""
    return public_names.walked("tf", tf, _is_left_out, lambda name: "tensorflow" in name)


def _is_left_out(path):
    return path.rpartition(".")[2] in FUTURE or path[3:].startswith(SKIPPED)


def asked(names):
    """{name: description} of names of 1.15; one without a description is missing."""
    return {name: description(value) for name in names for value in [resolved(name)] if value is not None}


def resolved(name):
    """(object,) or None."""
    owner = tf
    try:
        for part in name.split(".")[1:]:
            owner = getattr(as_made(owner) if inspect.isclass(owner) else owner, part)
    except (AttributeError, ImportError):
        return None
    return (owner,)


def described(name, value):
    """(name, description) of an object and, of a class, its public attributes."""
    yield name, description((value,))
    if inspect.isclass(value) and not proto(value):
        value = as_made(value)
        for inner in sorted(dir(value)):
            if inner == "__init__" or not inner.startswith("_"):
                yield name + "." + inner, description((getattr(value, inner),))


def description(boxed):
    """A list of a callable's parameters, "class", "value", or "callable" where they cannot be known."""
    (value,) = boxed
    if inspect.isclass(value):
        return "class"
    if not callable(value):
        return "value"
    try:
        return [parameter(declared) for declared in inspect.signature(unwrapped(value)).parameters.values()]
    except (ValueError, TypeError):
        return "callable"


def unwrapped(function):
    """The function behind TensorFlow's decorators."""
    while hasattr(function, "_tf_decorator"):
        function = function._tf_decorator.decorated_target
    return function


def as_made(kind):
    """The class of a class's objects: Keras chooses another base for them when the first is made in a graph."""
    if not issubclass(kind, tf.Module) or "keras" not in kind.__module__:
        return kind
    try:
        return type(kind.__new__(kind))
    except Exception:
        return kind


def proto(kind):
    """Whether a class is that of a protocol buffer."""
    return any(base.__module__.startswith("google.") for base in kind.__mro__)


def parameter(declared):
    """One parameter as "name", "name=default", "*name" or "**name"."""
    stars = {declared.VAR_POSITIONAL: "*", declared.VAR_KEYWORD: "**"}.get(declared.kind, "")
    text = stars + declared.name
    return text if declared.default is declared.empty else text + "=" + re.sub(r" at 0x\w+", "", repr(declared.default))


# Calls


def lines(name):
    """The expressions of a file."""
    return [line for line in (HERE / name).read_text().splitlines() if line]


# how a shape is open: sizes of a known shape -> what a placeholder gets
OPENINGS = {
    "known": lambda sizes: sizes,
    "open first": lambda sizes: [None, *sizes[1:]],
    "open inner": lambda sizes: [sizes[0]] + [None] * (len(sizes) - 1),
    "open sizes": lambda sizes: [None] * len(sizes),
    "open rank": lambda sizes: None,
}


def words(opening):
    """The names that an expression may use, with tensors of one opening, or with values if it is None."""

    def tensor(dtype, values):
        def make(*sizes):
            if opening is None:
                return tf.constant(values(int(np.prod(sizes))).reshape(sizes), dtype)
            return tf.placeholder(dtype, OPENINGS[opening](list(sizes)))

        return make

    def ramp(n):
        return ((np.arange(n) * 7 + 3) % 11 + 1) / 12.0

    return {
        "tf": tf,
        "np": np,
        "T": tensor(tf.float32, ramp),
        "I": tensor(tf.int32, lambda n: np.arange(n) % 2),
        "B": tensor(tf.bool, lambda n: np.arange(n) % 2 == 0),
        "W": lambda *sizes: tf.constant(ramp(int(np.prod(sizes))).reshape(sizes), tf.float32),
        "S": lambda: tf.placeholder_with_default(2, []),
    }


def outcome(expression, names, described):
    """What an expression gives in a graph of its own, described; "! ErrorType: message" if it fails."""
    with tf.Graph().as_default():
        try:
            return described(eval(expression, dict(names)))
        except Exception as error:
            return "! %s: %s" % (type(error).__name__, " ".join(str(error).split())[:120])


def shapes():
    """(expression | opening, shapes and dtypes of the result) pairs."""
    for line in lines("shapes.txt"):
        for opening in OPENINGS if re.search(r"\b[TIB]\(", line) else ["known"]:
            yield "%s | %s" % (line, opening), outcome(line, words(opening), typed)


def numbers():
    """(expression | kind of number, shapes and dtypes of the result) pairs."""
    for line in lines("numbers.txt"):
        for kind, text in KINDS.items() if "N(" in line else [("", "")]:
            names = dict(words("known"), N=lambda _, text=text: eval(text, {"tf": tf, "np": np}))
            yield "%s | %s" % (line, kind), outcome(line, names, typed)


def layers():
    """(expression, variables and collections of its graph) pairs."""
    for line in lines("layers.txt"):
        yield line, outcome(line, words("known"), lambda _: collected(tf.get_default_graph()))


def values():
    """(expression, numbers that it computes) pairs, of those without variables of their own."""
    for line in lines("shapes.txt"):
        yield line, outcome(line, words(None), computed)


def typed(result):
    """A result as text: tensors as dtype and shape."""
    if isinstance(result, (list, tuple)):
        return "[%s]" % ", ".join(map(typed, result))
    if isinstance(result, (tf.SparseTensor, tf.IndexedSlices)):
        return "%s(%s)" % (type(result).__name__, typed(list(filter(tf.is_tensor, [result.values, result.indices]))))
    if tf.is_tensor(result) or isinstance(result, tf.Variable):
        return "%s%s" % (result.dtype.base_dtype.name, result.shape)
    if isinstance(result, tf.data.Dataset):
        return "Dataset %s %s" % (tf.data.get_output_types(result), tf.data.get_output_shapes(result))
    return str(result) if isinstance(result, KEPT) else type(result).__name__


KEPT = (bool, int, float, str, np.ndarray, np.generic, tf.TensorShape, tf.Dimension, tf.DType, type(None))


def results():
    """(name, classes) pairs: what functions and methods ("...()") give, and what attributes hold; "" is no class."""
    names = {}
    for path, value in public():
        if inspect.isclass(value) and value is not tf.Module:
            names[value] = min(names.get(value, path), path, key=lambda text: (text.count("."), text))
    kinds_of = {}
    for line in [line for name in ("objects.txt", "shapes.txt", "layers.txt") for line in lines(name)]:
        node = ast.parse(line, mode="eval").body
        while isinstance(node, (ast.Call, ast.Attribute)):
            with tf.Graph().as_default():
                key, kind = link(node, dict(words("known")), names)
            if key:
                kinds_of.setdefault(key, set()).add(kind)
            node = node.func if isinstance(node, ast.Call) else node.value
    return {key: sorted(kinds) for key, kinds in sorted(kinds_of.items())}


def link(node, given, names):
    """(Name, class) of the call, or the attribute, that an expression ends with; name "" if it is not ours or fails."""
    is_call = isinstance(node, ast.Call)
    inner = node.func if is_call else node
    try:
        result = value_of(node, given)
        if not isinstance(inner, ast.Attribute):
            name = owned(value_of(inner, given), "__call__", names)
            return name and name + "()", class_of(type(result), names)
        owner = value_of(inner.value, given)
    except Exception:
        return "", ""
    if isinstance(owner, types.ModuleType) or inspect.isclass(owner):
        name = dotted(inner) if is_call and not inspect.isclass(getattr(owner, inner.attr)) else ""
    else:
        name = owned(owner, inner.attr, names)
    return name and name + "()" * is_call, class_of(type(result), names)


def value_of(node, given):
    """The value of an expression."""
    return eval(compile(ast.Expression(node), "<line>", "eval"), given)


def dotted(node):
    """The dotted name that an expression is, or ""."""
    if isinstance(node, ast.Name):
        return "tensorflow" if node.id == "tf" else ""
    above = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return above and above + "." + node.attr


def owned(owner, name, names):
    """The dotted name of a method or attribute by the most general public class that has the same, or ""."""
    own = getattr(type(owner), name, None)
    homes = [kind for kind in type(owner).__mro__ if kind in names and getattr(kind, name, None) is own]
    return "tensorflow" + names[homes[-1 if own is not None else 0]][2:] + "." + name if homes else ""


def class_of(kind, names):
    """The dotted name of a class, or of the first public one that it derives from, or ""."""
    return next(("tensorflow" + names[base][2:] for base in kind.__mro__ if base in names), "")


def collected(graph):
    """{collection: what lies in it} of a graph, by names."""
    return {
        str(key): [named(member) for member in graph.get_collection(key)]
        for key in graph.get_all_collection_keys()
        if not str(key).startswith("_") and isinstance(key, str)
    }


def named(member):
    """What lies in a collection, as text."""
    name = getattr(member, "name", type(member).__name__)
    return "%s %s" % (name, typed(member)) if tf.is_tensor(member) or isinstance(member, tf.Variable) else str(name)


def computed(result):
    """For each tensor of a result: its size, its sum, the sum of its absolute values, its first elements."""
    graph = tf.get_default_graph()
    tensors = [tensor for tensor in tf.nest.flatten(result) if isinstance(tensor, tf.Tensor)]
    if not tensors or tf.global_variables() or graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS):
        return None
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=500)) as session:
        session.run([tf.local_variables_initializer(), tf.tables_initializer()])
        return [summed(value) for value in session.run(tensors)]


def summed(value):
    """A value of a run: its size, sums and first elements, or itself if it is one number or no numbers."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        return str(value) if np.asarray(value).dtype.kind in "OSU" else float(np.real(value))
    wide = np.real(value).astype(np.float64).ravel()
    return [value.size, wide.sum(), np.abs(wide).sum(), *wide[:3]]


if __name__ == "__main__":
    main()
