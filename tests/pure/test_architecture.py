"""The rules of the code: who may import whom, what TensorFlow-free means, length of files."""

import ast
import importlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

layers = importlib.import_module("layers")  # scripts/layers.py
# the packages of each root package by layer: a package imports only from layers below its own
ROOTS = {
    "npu_shim": [
        {"rewriter", "configs"},
        {"checkpoint", "compat", "pjrt"},
        {"distributed", "step"},
        {"options"},
        {"loss_scale"},
        {"session"},
        {"estimator", "xla"},
        {"export", "bridge"},
        {"engine"},
        {"cli"},
        {"__main__"},
    ],
    "npu_shim.rewriter": [
        {"errors", "tf_internals", "collector"},
        {"tables"},
        {"graph", "ir"},
        {"inference", "planner", "analysis"},
        {"graphdef", "lint", "page", "passes"},
        {"rewrite"},
    ],
}
# what may import TensorFlow and numpy in rewriter/
WITH_TENSORFLOW = ("tf_internals", "inference", "graphdef", "lint", "page", "rewrite")
KNOWN = layers.modules(ROOT)
PURE = [
    *(name for name in KNOWN if name.startswith("npu_shim.rewriter.") and name.split(".")[2] not in WITH_TENSORFLOW),
    *("npu_shim.options." + name for name in ("table", "precision", "amp", "entrances.amp_config")),
    *("npu_shim.options.ops." + name for name in ("mixlist", "customize")),
    *("npu_shim." + name for name in ("configs", "cli", "compat.scan.files", "compat.python.aliases")),
    "npu_shim.loss_scale.managers.schedule",
    "npu_shim",
]


def imports(path):
    """Modules that a file imports anywhere in it, relative ones with their dots."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@pytest.mark.parametrize("root", ROOTS)
def test_packages_import_from_lower_layers_only(root):
    graph = layers.dependencies(ROOT, root)
    layer = {name: number for number, names in enumerate(ROOTS[root]) for name in names}
    assert set(graph) == set(layer)
    up = [(here, there) for here in graph for there in graph[here] if layer[there] >= layer[here]]
    assert not up
    assert not layers.cycles(graph)


def test_cycles_are_seen():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert layers.cycles(graph) == [{"b", "c"}]
    assert layers.layers(graph) == {}
    assert layers.layers({"a": set(), "b": {"a"}, "c": {"a", "b"}}) == {"a": 0, "b": 1, "c": 2}


def test_the_top_of_npu_shim_has_few_entries():
    # py.typed is a mark for type checkers, not an entry to look into; the links are rewriter/ and configs/
    entries = [path for path in (ROOT / "npu_shim").iterdir() if path.name not in ("__pycache__", "py.typed")]
    assert len([path for path in entries if not path.is_symlink()]) <= 16
    assert {path.name for path in entries if path.is_symlink()} == {"rewriter", "configs"}


def test_the_rewriter_knows_nothing_above_it():
    for path in (ROOT / "rewriter").rglob("*.py"):
        named = [module for module in imports(path) if module.startswith(("npu_", "rewriter", "hccl"))]
        assert not named, path
        if path.relative_to(ROOT / "rewriter").parts[0].replace(".py", "") not in WITH_TENSORFLOW:
            assert not [m for m in imports(path) if m.startswith(("tensorflow", "numpy"))], path


def test_private_tensorflow_is_imported_in_one_file():
    for path in [*ROOT.glob("npu_shim/**/*.py"), *ROOT.glob("rewriter/**/*.py"), *ROOT.glob("scripts/*.py")]:
        if path.name != "tf_internals.py":
            assert not [m for m in imports(path) if m.startswith("tensorflow.python")], path


def test_mypy_reads_every_module_without_tensorflow_strictly():
    settings = (ROOT / "pyproject.toml").read_text().partition("[tool.mypy]\n")[2].partition("\n[tool.pytest")[0]
    assert 'files = ["npu_shim"]\n' in settings
    assert "strict = true" in settings
    named = re.findall(r'^    "(npu_shim[.\w]+)",$', settings, re.MULTILINE)
    assert len(named) == len(set(named))
    assert [name for name in named if name not in KNOWN] == []
    uses = re.compile(r"^ *(?:import|from) tensorflow|tf_internals", re.MULTILINE)
    assert [name for name in named if not uses.search(KNOWN[name].read_text())] == []


# modules whose public functions are not annotated yet
WITHOUT_TYPES = {"npu_shim/engine/%s.py" % name for name in ("partition/facts", "runtime/requests", "sessions", "step")}


def public_functions(body, method=False):
    """The public functions of a module or class, and in its public classes: (FunctionDef, whether it is a method)."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and (node.name in ("__init__", "__call__") or node.name[0] != "_"):
            yield node, method
        elif isinstance(node, ast.ClassDef) and node.name[0] != "_":
            yield from public_functions(node.body, True)


def unannotated(path):
    """Names of a module's public functions that leave the type of an argument or of the result open."""
    for function, method in public_functions(ast.parse(path.read_text()).body):
        of = function.args
        static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list)
        before = getattr(of, "posonlyargs", [])  # of Python 3.8
        taken = [*before, *of.args, *of.kwonlyargs, of.vararg, of.kwarg][method and not static :]
        result = function.returns is not None or function.name == "__init__"
        if not result or not all(argument.annotation for argument in taken if argument is not None):
            yield function.name


def test_public_functions_are_annotated():
    open_ones = {str(path.relative_to(ROOT)): list(unannotated(path)) for path in (
        *ROOT.glob("npu_shim/**/*.py"), *ROOT.glob("rewriter/**/*.py"))}  # fmt: skip
    assert {path for path, names in open_ones.items() if names} <= WITHOUT_TYPES


EMPTY = {"each", "found", "made"}  # names that say nothing of what they name


def named_variables(tree):
    """(name, line) of each variable, attribute, argument, exception, import, function and class of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
            yield node.name, node.lineno
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name, node.lineno) for alias in node.names)


@pytest.mark.parametrize("folder", ["npu_shim", "rewriter", "scripts", "tests"])
def test_variables_are_named_for_what_they_are(folder):
    paths = {str(path.relative_to(ROOT)): path for path in (ROOT / folder).rglob("*.py")}
    named = ((path, *named) for path in paths
             for named in named_variables(ast.parse(paths[path].read_text())))  # fmt: skip
    assert not ["%s:%d: %s" % (path, line, name) for path, name, line in named if str(name).lstrip("_") in EMPTY]


@pytest.mark.parametrize("code", [
    "made = 1", "for each in (): pass", "[each for each in ()]", "lambda found: 0", "def f(*, made): pass",
    "with f() as (a, found): pass", "import made", "def found(): pass", "self.found = 1",
])  # fmt: skip
def test_a_variable_with_an_empty_name_is_seen(code):
    assert {name for name, _ in named_variables(ast.parse(code))} & EMPTY


def test_pure_modules_do_not_import_tensorflow():
    code = "import sys, importlib\nfor m in sys.argv[1:]: importlib.import_module(m)\n"
    code += "print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *PURE], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == "False"
    # and the check can fail, also where no TensorFlow is installed
    command = [sys.executable, "-c", code, "npu_shim.session.interception.patch"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.stdout.decode().strip().endswith(("True", "No module named 'tensorflow'"))


@pytest.mark.parametrize("folder", ["npu_shim", "rewriter", "configs", "scripts"])
def test_no_source_file_is_too_long_to_read(folder):
    long = {str(p): n for p in (ROOT / folder).rglob("*.py") for n in [len(p.read_text().splitlines())] if n > 500}
    assert not long


def test_every_public_name_has_a_home():
    import npu_shim

    for name, module in npu_shim._HOMES.items():
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), name


@pytest.mark.parametrize("package", ["npu_shim", "npu_shim.loss_scale"])
def test_type_checkers_read_the_names_that_are_loaded_at_first_use(package):
    module = importlib.import_module(package)
    tree = ast.parse(pathlib.Path(module.__file__).read_text())
    branches = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = (node for node in branches if getattr(node.test, "id", "") == "TYPE_CHECKING")
    read = {line.names[0].asname: line.module for line in block.body}
    homes = {name: home if home.startswith("npu_") else package + "." + home for name, home in module._HOMES.items()}
    homes.update(dict.fromkeys(getattr(module, "_PACKAGES", ()), package))
    assert read == homes
    assert module.__all__ == sorted(homes)
    assert set(dir(module)) - {"__version__"} == set(homes)


@pytest.mark.parametrize("name", ["tests", "setup", "npu_shim", "scripts"])
def test_a_checkout_gives_what_an_installation_gives(name):
    assert importlib.util.find_spec("npu_shim." + name) is None


def test_nothing_speaks_of_the_machine_it_was_written_on():
    words = ("/" + "work/", "/opt" + "/v/", "pypi" + ".org")
    for folder, folders, files in os.walk(str(ROOT)):
        folders[:] = [name for name in folders if not name.startswith(".venv")]
        for path in (pathlib.Path(folder) / name for name in files):
            if path.suffix in (".py", ".md", ".cc", ".json", ".toml", ".txt", ".yml", ".yaml"):
                text = path.read_text(errors="replace")
                assert not [word for word in words if word in text], path


def test_modules_import_by_both_of_their_homes_only_once():
    """A module under two names has its classes twice, and `except ConfigError` catches one of them."""
    code = (
        "import collections, importlib, os, sys\n"
        "for name in sys.argv[2:]: importlib.import_module(name)\n"
        "files = [os.path.realpath(m.__file__) for m in list(sys.modules.values()) if getattr(m, '__file__', None)]\n"
        "twice = [f for f, n in collections.Counter(files).items() if n > 1 and f.startswith(sys.argv[1])]\n"
        "print(twice)"
    )

    def twice(*names):
        done = subprocess.run([sys.executable, "-c", code, str(ROOT), *names], stdout=subprocess.PIPE, cwd=str(ROOT),
                              check=True)  # fmt: skip
        return done.stdout.decode().strip()

    assert twice(*PURE) == "[]"
    assert "errors.py" in twice(*PURE, "rewriter.errors")  # and the check can fail


def test_a_checkout_needs_no_installation_to_be_imported():
    code = "import sys; sys.path.insert(0, sys.argv[1]); import npu_shim.rewriter.planner.plan, npu_shim.configs as c\n"
    code += "print(npu_shim.rewriter.__file__, c.__file__, npu_shim.ConfigError.__module__)"
    done = subprocess.run([sys.executable, "-S", "-E", "-c", code, str(ROOT)], stdout=subprocess.PIPE, check=True)
    rewriter, configs, home = done.stdout.decode().split()
    assert os.path.realpath(rewriter) == str(ROOT / "rewriter" / "__init__.py")
    assert os.path.realpath(configs) == str(ROOT / "configs" / "__init__.py")
    assert home == "npu_shim.rewriter.errors"
