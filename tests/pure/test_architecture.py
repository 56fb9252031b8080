"""The rules of the house, held against the code: who may import whom, what TensorFlow-free means, length of files."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# rewriter modules by level: a module imports only from its own level or below
LEVELS = [
    {"errors", "dtypes", "policy", "op_table", "graph_view", "kernel_table", "slow_kernels"},
    {"casts", "emulation", "folding", "lists", "ties", "links", "overrides", "decisions", "state", "loops", "rounds",
     "references", "placement", "plan", "verify", "report", "grappler", "grappler_graph", "grappler_containers"},
    {"tf_internals", "graph_def", "apply", "inference", "contents", "shapes", "ranges", "numerics", "constants",
     "functions", "inlining", "outlining"},
]
PURE = [
    *("npu_shim.rewriter." + name for name in sorted(LEVELS[0] | LEVELS[1])),
    *("npu_shim." + name for name in ("configs", "options", "mixlist", "precision", "customize", "amp", "cli", "scan")),
    "npu_shim",
    "npu_shim.compat.aliases",
    "npu_shim.loss_scale.schedule",
]


def imports(path):
    """Modules that a file imports anywhere in it, relative ones with their dots."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
            if node.module is None:
                yield from ("." * node.level + name.name for name in node.names)


def test_the_rewriter_is_layered_and_knows_nothing_above_it():
    level = {name: number for number, names in enumerate(LEVELS) for name in names}
    files = {path.stem: path for path in (ROOT / "rewriter").glob("*.py") if path.stem != "__init__"}
    assert set(files) == set(level)
    for name, path in files.items():
        for module in imports(path):
            if module.startswith("."):
                assert level[module.lstrip(".")] <= level[name] if module.lstrip(".") else True, (name, module)
            assert not module.startswith("npu_"), (name, module)
            assert level[name] == 2 or not module.startswith(("tensorflow", "numpy")), (name, module)


def test_private_tensorflow_is_behind_one_door():
    for path in [*ROOT.glob("npu_shim/**/*.py"), *ROOT.glob("rewriter/*.py"), *ROOT.glob("scripts/*.py")]:
        if path.name != "tf_internals.py":
            assert not [m for m in imports(path) if m.startswith("tensorflow.python")], path


def test_pure_modules_do_not_import_tensorflow():
    code = "import sys, importlib\nfor m in sys.argv[1:]: importlib.import_module(m)\n"
    code += "print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *PURE], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == "False"
    # and the check can fail
    done = subprocess.run([sys.executable, "-c", code, "npu_shim.session.patch"], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip().endswith("True")


@pytest.mark.parametrize("folder", ["npu_shim", "rewriter", "configs", "scripts"])
def test_no_source_file_is_too_long_to_read(folder):
    long = {str(p): n for p in (ROOT / folder).rglob("*.py") for n in [len(p.read_text().splitlines())] if n > 400}
    assert not long


def test_every_public_name_has_a_home():
    import npu_shim

    for name, module in npu_shim.PUBLIC.items():
        path = module.replace("npu_shim.rewriter", "rewriter").replace(".", "/")
        assert (ROOT / (path + ".py")).exists() or (ROOT / path / "__init__.py").exists(), name


def test_nothing_speaks_of_the_machine_it_was_written_on():
    words = ("/" + "work/", "/opt" + "/v/", "pypi" + ".org")
    for folder, folders, files in os.walk(str(ROOT)):
        folders[:] = [name for name in folders if not name.startswith(".venv")]
        for path in (pathlib.Path(folder) / name for name in files):
            if path.suffix in (".py", ".md", ".cc", ".json", ".toml", ".txt"):
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
