"""The table of removed names; what it changes is looked at in processes of their own."""

import importlib
import os
import subprocess
import sys
import threading

import pytest

from npu_shim.compat.names import missing
from npu_shim.compat.python import aliases

SCRIPT = """
from npu_shim.compat.python import aliases
import collections, fractions, inspect, os, sys, time
import numpy as np
before = np.float64
aliases.install()
aliases.install()

def f(a, b=1, *c, **d):
    pass

from collections import Mapping, OrderedDict
assert isinstance({}, Mapping) and isinstance([], collections.Sequence)
assert np.zeros(2, np.float).dtype == "float64" and np.zeros(2, np.int).dtype.kind == "i"
assert np.float is float and np.object is object and np.bool in (bool, np.bool_)
assert np.product([2, 3]) == 6 and np.Inf == float("inf") and list(np.in1d([1, 2], [2])) == [False, True]
assert np.asscalar(np.array([[2.5]])) == 2.5 and list(np.lib.pad([1], 1, "constant")) == [0, 1, 0]
assert np.alen(np.zeros((3, 2))) == 3 and np.alen([1, 2]) == 2 and np.alen(7) == np.alen(np.array(7)) == 1
assert np.asfarray([1]).dtype == "float64" and np.asfarray([1], "float32").dtype == "float32"
assert fractions.gcd(4, 6) == 2 and os.errno.EEXIST == 17 and time.clock() <= time.clock()
assert tuple(inspect.getargspec(f)) == (["a", "b"], "c", "d", (1,))
import imp
assert imp.new_module("m").__name__ == "m" and imp.reload(fractions) is fractions
assert imp.load_source("made", sys.argv[1]).value == 7 and sys.modules["made"].value == 7
assert np.float64 is before
import io
rows = "# user::item::rating\\n1::2::3\\n\\n4::5::6  # the last\\n"
for source, delimiter in ((io.StringIO(rows), "::"), (rows.encode().splitlines(), b"::")):
    assert np.loadtxt(source, delimiter=delimiter, dtype=np.int32).tolist() == [[1, 2, 3], [4, 5, 6]]
table = os.path.join(os.path.dirname(sys.argv[1]), "table")
with open(table, "w") as file:
    file.write(rows)
assert np.loadtxt(table, float, "#", "::", usecols=(2,), unpack=True).tolist() == [3, 6]
assert np.loadtxt(["1,2"], delimiter=",").tolist() == [1, 2]
import threading
assert threading.current_thread().isAlive()
for module, name in ((np, "flaot"), (collections, "Maping")):
    try:
        getattr(module, name)
    except AttributeError as error:
        assert name in str(error)
    else:
        assert False, name
"""


def run(script, *argv, **env):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, argv)], env={**os.environ, **env},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", sorted(aliases.NAMES))
def test_every_row_is_about_a_name_that_is_there_or_can_be_made(module):
    try:
        owner = importlib.import_module(module)
    except ImportError as reason:  # it is not there, or does not load beside newer packages
        pytest.skip("could not import '%s': %s" % (module, reason))
    for name, (target, version) in aliases.NAMES[module].items():
        is_there = hasattr(owner, name) or missing.load(target) is not None
        assert is_there, name
        assert version.split()[-1][0].isdigit()


def test_nothing_changes_before_it_is_installed():
    code = "import collections, numpy, npu_shim.cli; from npu_shim.compat.python import aliases\n"
    code += "assert '__getattr__' not in vars(collections) or collections.__getattr__.__module__ == 'collections'\n"
    assert run(code) == (0, "")


def test_old_names_mean_what_they_meant(tmp_path):
    (tmp_path / "made.py").write_text("value = 7\n")
    status, log = run(SCRIPT, tmp_path / "made.py")
    assert status == 0, log


@pytest.mark.parametrize("before", ["", "import scipy.sparse.linalg.eigen\n"])
def test_a_package_that_became_a_module_still_has_its_modules(tmp_path, before):
    linalg = tmp_path / "scipy" / "sparse" / "linalg"
    linalg.mkdir(parents=True)
    for folder in (linalg.parent.parent, linalg.parent):
        (folder / "__init__.py").write_text("")
    (linalg / "__init__.py").write_text("from . import eigen\neigsh = 'the function'\n")
    (linalg / "eigen.py").write_text("")
    code = before + "from npu_shim.compat.python import aliases; aliases.install()\n"
    code += "from scipy.sparse.linalg.eigen.arpack import eigsh\nassert eigsh == 'the function'"
    status, log = run(code, PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert status == 0, log
    assert "scipy.sparse.linalg.eigen.arpack, which SciPy 1.8 removed, is scipy.sparse.linalg here" in log


def test_what_a_class_has_can_be_meant():
    assert missing.load("threading.Thread.is_alive") is threading.Thread.is_alive
    assert missing.load("os.path") is os.path
    for wrong, error in (("threading.Thraed.is_alive", AttributeError), ("no_such.module.name", ImportError)):
        with pytest.raises(error):
            missing.load(wrong)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the name is still there")
def test_the_first_use_is_logged_with_its_line_and_no_other():
    code = "from npu_shim.compat.python import aliases; aliases.install()\nimport inspect\n\n"
    code += "for _ in range(3): inspect.getargspec"
    status, log = run(code)
    assert status == 0
    assert len(log.splitlines()) == 1
    assert "inspect.getargspec, which Python 3.11 removed, is npu_shim's aliases.getargspec here" in log
    assert "line 4]" in log
    assert run(code, NPU_SHIM_LOG="off") == (0, "")


@pytest.mark.skipif(sys.version_info < (3, 9), reason="the name is still there")
def test_they_can_be_switched_off():
    code = "from npu_shim.compat.python import aliases; aliases.install()\nimport fractions; fractions.gcd"
    assert run(code, NPU_SHIM_ALIASES="on")[0] == 0
    status, log = run(code, NPU_SHIM_ALIASES="off")
    assert status == 1
    assert "AttributeError: module 'fractions' has no attribute 'gcd'" in log


def test_a_misspelt_switch_is_an_error(monkeypatch):
    monkeypatch.setenv("NPU_SHIM_ALIASES", "of")
    with pytest.raises(aliases.ConfigError, match=r"NPU_SHIM_ALIASES is 'of', expected on or off .did you mean 'off'"):
        aliases.install()
