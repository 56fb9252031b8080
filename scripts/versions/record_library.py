"""Records what a library beside TensorFlow does, as JSON; `scripts/compare_versions --library` runs it.

    record_library.py OUT LIBRARY [--names REFERENCE]

Public names below the library with their parameters, what each function that libraries.json has in its `grid` gives for
odd arguments, alone and in pairs, and what the lines of LIBRARY.txt give, if there is one: statements, the last of them
an expression. Python 3.7 runs this file with a version of the time; today's Python sees the library as under `npu-shim
run`, and is asked for the names of REFERENCE.
"""

import argparse
import ast
import contextlib
import importlib
import inspect
import json
import logging
import os
import pathlib
import pkgutil
import re
import resource
import signal
import sys
import tempfile
import types
import warnings

import numpy as np
import public_names

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = json.loads((HERE / "libraries.json").read_text())
# what is no part of what scripts call, or writes, waits and prints
NOT_CALLED = re.compile(
    r"\.(tests?|testing|\w+_test|test_\w+|conftest|setup|__main__|report)(\.|$)|\._[a-z]|\.Module_six|_pb2\."
)
NOT_CALLED_IN_NUMPY = re.compile(
    r"\.(tests?|testing|core|compat|distutils|f2py|setup|matrixlib|dual|doc|version|ctypeslib|conftest)(\.|$)"
    r"|\.(lib\.\w+|(emath|rec)\.(n[tx]|sb)|extras|linalg\.linalg|pu|normalize_axis_index)(\.|$)"
    r"|\.(lapack_lite|fftpack\w*|mtrand|bit_generator|overrides|polyutils|helper|pocketfft)(\.|$)"
    r"|\.(add_docstring|add_newdoc\w*|source|info|lookfor|who|save\w*|load\w*|from(file|regex|pyfunc)|memmap|DataSource)$"
    r"|\.(set\w+|seterr\w*|show_config|get_include|deprecate\w*|disp|genfromtxt|recfrom\w+|ndfromtxt|mafromtxt|seed)$"
    r"|\.(open_memmap|sys|os|warnings|MachAr|print_function|division|absolute_import|safe_eval|restoredot|byte_bounds)$"
)
# odd arguments, as text: they are made anew for each call
GRID = (
    "3", "2.5", "True", "'a'", "b'a'", "None", "[]", "[1, 2]", "(1.5, 2)", "[[1, 2], [3, 4]]", "[[1], [2, 3]]",
    "np.array(4)", "np.array([4])", "np.arange(3)", "np.eye(2)", "np.array([True, False])", "np.float32(2)",
    "np.zeros((0, 2))", "np.array(['a', 'b'])", "np.array([1, None], object)", "np.array([1 + 2j])",
    "np.array([np.nan, 1])", "[np.array([1.0]), 2.0]", "range(3)", "'float'", "np.matrix('1 2; 3 4')",
    "[np.zeros(2), np.ones(2)]", "np.ma.masked_array([1, 2], [0, 1])",
)  # fmt: skip
SHORT = (
    "2", "1.0", "None", "[1, 2]", "[[1, 2], [3, 4]]", "np.arange(4)", "np.eye(2)", "np.array([1])", "'int32'", "-1",
)  # fmt: skip
PARTS = ("columns", "index", "mode", "size")  # what else tells one table or image from another
SECONDS, BYTES = 2, 2**31  # what a call may take
NO_COMMENTS = [[]] * (sys.version_info >= (3, 8))  # what ast.Module takes besides statements
CALLS = 3  # most required arguments of a function that the grid is for


def main():
    """Writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("library")
    parser.add_argument("--names")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if sys.version_info >= (3, 8):
        from npu_shim.compat.python import aliases

        aliases.install()
        logging.disable(logging.WARNING)
    library = imported(args.library)
    reference = json.loads(pathlib.Path(args.names).read_text()) if args.names else None
    names = {name: resolved(library, name) for name in reference["signatures"]} if reference else dict(walked(library))
    record = {
        "version": getattr(library, "__version__", ""),
        "signatures": {name: described(value[0]) for name, value in names.items() if value is not None},
        "modules": [
            name for name in {path.rpartition(".")[0] for path in names} - set(names) if resolved(library, name)
        ],
        "elsewhere": elsewhere(library, [name for name, value in names.items() if value is None]),
        "values": dict(reference["values"] if reference else {}),
    }
    on_grid = re.compile(LIBRARIES[args.library]["grid"])
    functions = {name: value[0] for name, value in names.items() if value and of_module(library, name)}
    functions = {name: value for name, value in functions.items() if on_grid.fullmatch(name)}
    calls = record["values"] or [call for name, value in functions.items() for call in calls_of(name, value)]
    own = HERE / (args.library + ".txt")
    calls = list(dict.fromkeys([*calls, *(own.read_text().split("\n") if own.exists() else ())]))
    record["values"] = dict(zip(calls, outcomes(calls, library)))
    pathlib.Path(args.out).write_text(json.dumps(record, indent=0, sort_keys=True))


def imported(name):
    """A library; if it is not NumPy, which has them anyway, with all its public modules that can be imported."""
    library = importlib.import_module(name)
    library.__name__ = name  # OpenCV calls itself cv2.cv2
    if name != "numpy":
        for module in pkgutil.walk_packages(getattr(library, "__path__", []), name + ".", lambda _: None):
            if not NOT_CALLED.search(module.name):
                with contextlib.suppress(Exception, SystemExit):
                    importlib.import_module(module.name)
    return library


def walked(library):
    """(name, (object,)) of all public names below a library, those of classes of its own included."""
    own, seen = library.__name__, set()
    private = re.compile(LIBRARIES[own].get("private", "$^"))

    def is_left_out(name):
        return NOT_CALLED_IN_NUMPY.search(name) if own == "numpy" else NOT_CALLED.search(name) or private.match(name)

    for path, value in public_names.walked(own, library, is_left_out, lambda name: name.startswith(own + ".")):
        if own != "numpy" and not (getattr(value, "__module__", None) or own).startswith(own):
            continue  # it imports it for itself
        yield path, (value,)
        if inspect.isclass(value) and value.__module__.startswith(own) and id(value) not in seen:
            seen.add(id(value))
            for method in sorted(dir(value) if own == "numpy" else vars(value)):
                if not method.startswith("_") or method == "__init__":
                    yield path + "." + method, (getattr(value, method, None),)


def resolved(library, name):
    """(object,) of a dotted name, or None."""
    owner = library
    try:
        for part in filter(None, name[len(library.__name__) + 1 :].split(".")):
            if isinstance(owner, types.ModuleType) and not hasattr(owner, part):
                importlib.import_module(owner.__name__ + "." + part)
            owner = getattr(owner, part)
    except Exception:
        return None
    return (owner,)


def elsewhere(library, lost):
    """{name that is lost: the shortest name of a function or class of today that is called so}."""
    places = {}
    for name in sorted((name for name, _ in walked(library)) if lost else (), key=len):
        if of_module(library, name):
            places.setdefault(name.rpartition(".")[2], name)
    return {name: places[name.rpartition(".")[2]] for name in lost if name.rpartition(".")[2] in places}


def of_module(library, name):
    """Whether a dotted name is of a module, not of a class."""
    above = name.rpartition(".")[0]
    return above == library.__name__ or isinstance(resolved(library, above)[0], types.ModuleType)


def described(value):
    """A list of a callable's parameters, "class", "value", or "callable" where they cannot be known."""
    if inspect.isclass(value):
        return "class"
    if not callable(value):
        return "value"
    if "fused_cython" in type(value).__name__:
        return "callable"  # to look at it ends the process
    try:
        declared = list(inspect.signature(value).parameters.values())
    except (ValueError, TypeError):
        return "callable"
    texts = [parameter(one) for one in declared]
    by_name = [one.kind is one.KEYWORD_ONLY for one in declared]
    if any(by_name) and not any(one.kind is one.VAR_POSITIONAL for one in declared):
        texts.insert(by_name.index(True), "*")
    return texts


def parameter(declared):
    """One parameter as "name", "name=default", "*name" or "**name"."""
    stars = {declared.VAR_POSITIONAL: "*", declared.VAR_KEYWORD: "**"}.get(declared.kind, "")
    text = stars + declared.name
    return text if declared.default is declared.empty else text + "=" + re.sub(r" at 0x\w+", "", repr(declared.default))


def calls_of(name, value):
    """Calls of a function with odd arguments."""
    if inspect.isclass(value) or not callable(value):
        return
    for count in required(value):
        if count == 1:
            yield from ("%s(%s)" % (name, first) for first in GRID)
        elif count == 2:
            yield from ("%s(%s, %s)" % (name, first, second) for first in SHORT for second in SHORT)
        elif count == CALLS:
            yield from ("%s(%s, %s, %s)" % (name, first, first, second) for first in SHORT for second in SHORT)


def required(value):
    """How many arguments a function has to have, a list: one number, or both that a function in C may want."""
    if isinstance(value, np.ufunc):
        return [value.nin]
    try:
        declared = inspect.signature(value).parameters.values()
    except (ValueError, TypeError):
        return [1, 2]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(one.kind in kinds and one.default is one.empty for one in declared)
    return [count or 1]


def outcomes(calls, library):
    """What each of some calls gives; a child makes them, and another goes on behind one that ends its process."""
    texts = []
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "lines"
        while len(texts) < len(calls):
            child = os.fork()
            if not child:
                os.chdir(folder)  # some write a file
                resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
                with open(str(lines), "w") as f:
                    for call in calls[len(texts) :]:
                        signal.alarm(SECONDS)
                        f.write(json.dumps(outcome(call, library)) + "\n")
                        f.flush()
                os._exit(0)
            os.waitpid(child, 0)
            texts += map(json.loads, lines.read_text().splitlines())
            texts += ["! it ends the process"] * (len(texts) < len(calls))
    return texts


def outcome(call, library):
    """What a call gives, as text; "! ErrorType: message" if it fails."""
    np.random.seed(0)
    try:
        *steps, last = ast.parse(call).body
        names = {library.__name__.partition(".")[0]: sys.modules[library.__name__.partition(".")[0]], "np": np}
        exec(compile(ast.Module(steps, *NO_COMMENTS), call, "exec"), names)
        return shown(eval(compile(ast.Expression(last.value), call, "eval"), names))
    except Exception as error:
        return "! %s: %s" % (type(error).__name__, " ".join(str(error).split())[:120])


def shown(value):
    """A result as text: class, dtype, shape and numbers of arrays, rounded; classes of what is neither."""
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(map(shown, value))
    if isinstance(value, (np.ndarray, np.generic)):
        numbers = np.asarray(value)
        rounded = [shown(one) for one in numbers.reshape(-1)[:20].tolist()]
        return "%s%s%s" % (numbers.dtype.str.replace("U1", "U"), numbers.shape, "[%s]" % ", ".join(rounded))
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, (float, complex)):
        return "%.5g" % value if isinstance(value, float) else "%.5g+%.5gj" % (value.real, value.imag)
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (shown(key), shown(value[key])) for key in value)
    for part in ("toarray", "to_numpy", "tobytes"):  # sparse matrices, tables, images
        if hasattr(value, part) and not inspect.isclass(value):
            labels = [list(getattr(value, name)) for name in ("columns", "index") if hasattr(value, name)]
            return type(value).__name__ + shown(
                [getattr(value, part)(), *labels, getattr(value, "shape", None) or value.size]
            )
    return repr(value) if isinstance(value, (bool, int, str, bytes, type(None))) else type(value).__name__


if __name__ == "__main__":
    main()
