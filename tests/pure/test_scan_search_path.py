"""Folders that a script puts on sys.path, from its text."""

import ast
import os
import textwrap

import pytest

from npu_shim.cli.scripts import scan as command
from npu_shim.compat.scan import files, modules, search_path

KNOWN = [
    ("sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))", ["/repo"]),
    ("sys.path.insert(0, os.path.abspath(os.path.join('..', 'models')))", ["/repo/models"]),
    ("sys.path.append('../../lib')\nsys.path.append('.')", ["/lib", "/repo/train"]),
    ("HERE = os.path.dirname(__file__)\nROOT = os.path.join(HERE, os.pardir)\nsys.path += [ROOT, HERE + '/nets']",
     ["/repo", "/repo/train/nets"]),
    ("sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'slim'))", ["/repo/slim"]),
    ("sys.path = ['/opt/tools'] + sys.path", ["/opt/tools"]),
    ("sys.path.extend([os.getcwd()])", ["/repo/train"]),
    ("site.addsitedir('vendor')", ["/repo/train/vendor"]),
    ("paths.append('/x')\nsys.paths.append('/x')\nprint(sys.path[0])", []),
]  # fmt: skip
OPEN = [
    "sys.path.append(args.code_path)",
    "sys.path.insert(0, find())",
    "sys.path.insert(*where)",
    "root = '/a' if here else '/b'\nsys.path.append(root)",
    "root = '/a'\nroot = '/b'\nsys.path.append(root)",
    "sys.path.append(os.path.join(config.ROOT, 'x'))",
]


@pytest.mark.parametrize(("script", "folders"), KNOWN)
def test_folders_that_the_text_gives(script, folders):
    added = search_path.search_path(ast.parse(script), "/repo/train/train.py")
    assert (sorted(added.folders), added.is_open) == (folders, False)


@pytest.mark.parametrize("script", OPEN)
def test_folders_that_only_a_run_shows(script):
    assert search_path.search_path(ast.parse(script), "/repo/train.py") == search_path.SearchPath(frozenset(), True)


def test_paths_are_relative_where_the_scripts_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    added = search_path.search_path(ast.parse("sys.path += ['..', '../lib', '/x']"), "train/train.py")
    assert added.folders == {"", "lib", os.path.relpath("/x")}


def tree(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))


def test_what_the_script_adds_serves_what_it_imports(tmp_path):
    tree(tmp_path, {
        "app/train.py": "import sys\nsys.path.append('../core')\nimport net\nnet.f()\n",
        "core/net.py": "import sys\nsys.path.append('/nowhere'); sys.path.append('../lib')\nimport layer, gone\n",
        "lib/layer.py": "import net\n",
    })  # fmt: skip
    start = str(tmp_path / "app" / "train.py")
    read = files.own_files(start)
    assert sorted(os.path.relpath(path, str(tmp_path)) for path in read) == [
        "app/train.py", "core/net.py", "lib/layer.py",
    ]  # fmt: skip
    report = command.examined(read, start)
    assert [(stop.line, stop.needs) for stop in report.stops] == [(3, "gone")]
    assert (report.needs, report.will_stop, report.perhaps) == (["gone"], False, [])


def test_a_module_may_lie_in_a_folder_that_only_a_run_shows(tmp_path):
    tree(
        tmp_path,
        {"train.py": "import sys\nsys.path.append(sys.argv[1])\nimport somewhere, nets.gone\n", "nets/a.py": ""},
    )
    scripts = [files.read(path) for path in files.python_files(str(tmp_path))]
    lost = modules.lost(scripts, files.python_files(str(tmp_path)))
    assert [(one.certain, one.needs) for one in lost] == [(False, "somewhere"), (False, "")]
