"""What of JAX is not public and used here is where it is expected, in the release that is installed. Needs JAX."""

import ast
import importlib
import pathlib
import re

import pytest

from npu_shim import pjrt
from npu_shim.pjrt import jax_compat

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(pjrt.__file__).parent
PRIVATE = ("jaxlib", "jax._src", "jax.interpreters")


def is_private(module):
    return any(module == name or module.startswith(name + ".") for name in PRIVATE)


def names(text):
    """Returns the dotted names of what a module's text imports from PRIVATE and of what it reads of that."""
    tree, homes = ast.parse(text), {}  # name in the text -> dotted name
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_private(node.module or ""):
            homes.update({alias.asname or alias.name: "%s.%s" % (node.module, alias.name) for alias in node.names})
        elif isinstance(node, ast.Import):
            homes.update({alias.asname: alias.name for alias in node.names if alias.asname and is_private(alias.name)})
    read = (dotted(node).partition(".") for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return sorted({*homes.values(), *("%s.%s" % (homes[root], rest) for root, _, rest in read if root in homes)})


def dotted(node):
    """Returns the text of a name or of attributes of one; "" in front of what is an attribute of anything else."""
    if isinstance(node, ast.Attribute):
        return "%s.%s" % (dotted(node.value), node.attr)
    return node.id if isinstance(node, ast.Name) else ""


def moved(name):
    """Returns the first part of a dotted name that is not there, None where all of it is."""
    parts = name.split(".")
    owner = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(owner, part):
            try:
                importlib.import_module(".".join(parts[:number]))
            except ImportError:
                return ".".join(parts[:number])
        owner = getattr(owner, part)
    return None


def used():
    for path in sorted(FOLDER.rglob("*.py")):
        for name in names(path.read_text(encoding="utf-8")):
            yield "%s: %s" % (path.relative_to(FOLDER), name)


@pytest.mark.parametrize("use", list(used()))
def test_private_names_of_jax_are_where_they_were(use):
    pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
    assert moved(use.partition(": ")[2]) is None, "this JAX has moved it: " + use


def test_what_has_moved_is_seen():
    text = (
        "from os import path\nfrom jaxlib import _jax\nfrom jaxlib.mlir import ir as i\n_jax.mlir.f(i.Module.g(path.x))"
    )
    assert names(text) == ["jaxlib._jax", "jaxlib._jax.mlir", "jaxlib._jax.mlir.f", "jaxlib.mlir.ir",
                           "jaxlib.mlir.ir.Module", "jaxlib.mlir.ir.Module.g"]  # fmt: skip
    assert moved("os.path.join") is None
    assert moved("os.path.joint.more") == "os.path.joint"
    assert moved("xml.etree.ElementTree.parse") is None
    assert any("_jax.mlir.deserialize_portable_artifact" in use for use in used())


def test_jax_is_bound_to_the_releases_that_were_tried():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    asked = re.findall(r'"jax(?:\[\w+\])?([^"]*)"', text)
    (first, second), (last, newest) = jax_compat.TRIED
    assert asked == [">=%d.%d,<%d.%d" % (first, second, last, newest + 1)] * 3
