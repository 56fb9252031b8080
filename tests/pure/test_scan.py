"""Reading what scripts use: scripts as text in, names with lines out."""

import textwrap

import pytest

from npu_shim.cli import scan as command
from npu_shim.compat.scan import files as scan
from npu_shim.compat.scan import modules, symbols
from npu_shim.compat.scan import reach as scan_reach
from npu_shim.compat.scan import reader as scan_reader


def found(script):
    """[(names, line, need)] with the names of a use joined by "|" and NEEDED left out."""
    result = []
    for use in scan.uses(textwrap.dedent(script)):
        one = ("|".join(use.names), use.line)
        result.append(one if use.need == scan.NEEDED else (*one, use.need))
    return result


def names(script):
    return [use[0] for use in found(script)]


def test_attributes_of_an_imported_module():
    script = """
    import tensorflow as tf
    x = tf.placeholder(tf.float32, name="x")
    tf.nn.relu(x).eval()
    """
    assert found(script) == [
        ("tensorflow", 2),
        ("tensorflow.float32", 3),
        ("tensorflow.placeholder", 3),
        ("tensorflow.nn.relu", 4),
    ]


def test_every_form_of_import():
    script = """
    import tensorflow.contrib.layers as L
    import tensorflow.contrib.slim.nets
    from tensorflow.contrib import slim, rnn as cells
    from tensorflow.python.ops import math_ops
    from hccl.manage.api import create_group
    import npu_bridge.estimator
    L.conv2d; tensorflow.contrib.slim.nets.vgg; slim.conv2d; cells.GRUCell; math_ops.cast; npu_bridge.estimator.npu_ops
    """
    assert names(script)[:7] == [
        "tensorflow.contrib.layers",
        "tensorflow.contrib.slim.nets",
        "tensorflow.contrib.rnn",
        "tensorflow.contrib.slim",
        "tensorflow.python.ops.math_ops",
        "hccl.manage.api.create_group",
        "npu_bridge.estimator",
    ]
    assert names(script)[7:] == [
        "npu_bridge.estimator.npu_ops",
        "tensorflow.contrib.layers.conv2d",
        "tensorflow.contrib.rnn.GRUCell",
        "tensorflow.contrib.slim.conv2d",
        "tensorflow.contrib.slim.nets.vgg",
        "tensorflow.python.ops.math_ops.cast",
    ]


def test_modules_that_are_not_ours_count_nothing():
    assert names("import numpy as np, os.path\nfrom . import tensorflow\nfrom .tensorflow import x\nnp.a; x.c") == []
    # a module of the user's under the same name takes the name over
    assert names("import tensorflow as tf\nimport torch as tf\ntf.nn.relu") == ["tensorflow"]


def test_aliases_by_assignment():
    script = """
    import tensorflow as tf
    slim = tf.contrib.slim
    conv = slim.conv2d
    conv.__doc__
    slim = None
    slim.conv2d
    """
    assert names(script)[1:] == [
        "tensorflow.contrib.slim", "tensorflow.contrib.slim.conv2d", "tensorflow.contrib.slim.conv2d.__doc__",
    ]  # fmt: skip


def test_names_belong_to_their_scopes():
    script = """
    def early(layers):
        layers.dense  # an argument
        return tf.nn.relu  # bound below, before the call
    import tensorflow as tf
    from tensorflow import layers
    class Net(tf.keras.Model):
        tf = 1
        def call(self, x):
            return tf.nn.tanh([layers.a for layers in x]) + layers.b
    def late():
        global lazy
        import tensorflow.contrib as lazy
        later = lambda tf: tf.c
        with open("x") as tf:
            tf.d
    lazy.e
    """
    assert names(script) == [
        "tensorflow.nn.relu", "tensorflow", "tensorflow.layers", "tensorflow.keras.Model", "tensorflow.layers.b",
        "tensorflow.nn.tanh", "tensorflow.contrib",
    ]  # fmt: skip


def test_a_star_gives_the_names_that_nothing_else_binds():
    script = """
    from npu_bridge.npu_init import *
    def f(argument):
        return argument, local, NPURunConfig(), len(tf.nn.relu), xrange, __file__
    local = 1
    """
    assert found(script) == [
        ("npu_bridge.npu_init", 2), ("npu_bridge.npu_init.NPURunConfig", 4), ("tensorflow.nn.relu", 4),
    ]  # fmt: skip


def test_with_a_star_import_of_the_users_own_a_bare_name_is_a_guess():
    script = "from npu_bridge.npu_init import *\nfrom common import *\nNPURunConfig, build_model"
    assert found(script)[1:] == [
        ("npu_bridge.npu_init.NPURunConfig", 3, scan.PERHAPS), ("npu_bridge.npu_init.build_model", 3, scan.PERHAPS),
    ]  # fmt: skip


def test_branches_that_stand_in_for_one_another_are_optional():
    script = """
    import tensorflow as tf
    try:
        from tensorflow.contrib import slim
    except ImportError:
        import tf_slim as slim
    slim.conv2d
    if tf.__version__.startswith("2"):
        layers = tf.keras.layers
    else:
        layers = tf.layers
    layers.Dense
    if hasattr(layers, "x") or hasattr(options, "y"):
        tf.nn.tanh
    if hasattr(options, "y"):
        tf.nn.relu
    """
    assert found(script)[1:] == [
        ("tensorflow.contrib.slim", 4, scan.OPTIONAL),
        ("tensorflow.contrib.slim.conv2d", 7, scan.OPTIONAL),
        ("tensorflow.__version__.startswith", 8),
        ("tensorflow.keras.layers", 9, scan.OPTIONAL),
        ("tensorflow.layers", 11, scan.OPTIONAL),
        ("tensorflow.keras.layers.Dense|tensorflow.layers.Dense", 12),
        ("tensorflow.nn.tanh", 14, scan.OPTIONAL),
        ("tensorflow.nn.relu", 16),
    ]


def test_a_try_around_the_work_itself_makes_nothing_optional():
    script = "import tensorflow as tf\ntry:\n  tf.a()\n  f()\nexcept Exception:\n  tf.b\ntry:\n  tf.c\nfinally:\n  tf.d"
    assert all(len(use) == 2 for use in found(script))
    assert names(script)[1:] == ["tensorflow.a", "tensorflow.b", "tensorflow.c", "tensorflow.d"]


def test_a_file_that_is_not_python_3_is_said_with_its_line(tmp_path):
    (tmp_path / "old.py").write_text("import tensorflow as tf\n\nprint 'loss'\n")
    result = scan.read(str(tmp_path / "old.py"))
    assert (type(result), result.line) == (scan.Unread, 3)
    assert "print" in result.reason
    (tmp_path / "zero.py").write_bytes(b"x = 1\0")
    assert isinstance(scan.read(str(tmp_path / "zero.py")), scan.Unread)
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nimport tensorflow as tf  # \xe9\n")
    assert [use.names for use in scan.read(str(tmp_path / "latin.py")).uses] == [("tensorflow",)]


def test_a_notebook_is_no_script(tmp_path):
    (tmp_path / "train.ipynb").write_text('{"cells": [{"cell_type": "code", "source": ["import tensorflow as tf"]}]}')
    assert "notebook" in scan.read(str(tmp_path / "train.ipynb")).reason


def test_files_are_the_users_own_in_order(tmp_path):
    for path in ["b.py", "a/x.py", "a/notes.txt", ".git/g.py", "env/pyvenv.cfg", "env/lib/e.py", "__pycache__/c.py"]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    assert scan.python_files(str(tmp_path)) == [str(tmp_path / "a" / "x.py"), str(tmp_path / "b.py")]
    assert scan.python_files(str(tmp_path / "b.py")) == [str(tmp_path / "b.py")]
    with pytest.raises(OSError, match="nowhere"):
        scan.python_files(str(tmp_path / "nowhere"))


def test_the_share_is_never_rounded_up_to_all():
    missing = [scan.Use(("tensorflow.x",), "a.py", 1, scan.NEEDED)]
    many = {str(n): [] for n in range(9999)}
    one_short = command.summary(many, missing, 1, 0, "2.15.1")
    assert one_short == "9999 of 10000 symbols resolve under TensorFlow 2.15.1 (99.9 %); 1 file"
    assert command.summary(many, [], 3, 1, "2.15.1").endswith("(100 %); 3 files, 1 of them cannot be read")


def test_tensorflow_core_and_keras_are_ours():
    assert names("from tensorflow_core.python.tools import freeze_graph\nimport keras.layers") == [
        "tensorflow_core.python.tools.freeze_graph", "keras.layers",
    ]  # fmt: skip


def test_what_a_script_sets_is_no_use_of_it():
    script = """
    import tensorflow as tf
    tf.contrib._warning = None
    setattr(tf.GraphKeys, "VARIABLES", "variables")
    """
    assert found(script)[1:] == [
        ("tensorflow.contrib", 3),
        ("tensorflow.contrib._warning", 3, scan.SET),
        ("tensorflow.GraphKeys", 4),
        ("tensorflow.GraphKeys.VARIABLES", 4, scan.SET),
    ]


def test_branches_of_another_python_are_dead():
    script = """
    import sys
    import six
    import tensorflow as tf
    if sys.version_info[0] < 3: tf.a
    else: tf.b
    if six.PY2: tf.c
    if sys.version_info >= (3, 0) and not six.PY2: tf.d
    if sys.argv: tf.e
    """
    assert names(script)[1:] == ["tensorflow.b", "tensorflow.d", "tensorflow.e"]


def test_every_way_to_ask_for_a_name_makes_it_optional():
    script = """
    import tensorflow as tf
    a = tf.a if hasattr(tf, "a") else None
    b = hasattr(tf, "b") and tf.b
    """
    assert [use for use in found(script) if "tensorflow." in use[0]] == [
        ("tensorflow.a", 3, scan.OPTIONAL), ("tensorflow.b", 4, scan.OPTIONAL),
    ]  # fmt: skip


def test_a_star_import_of_a_file_beside_the_script_is_read(tmp_path):
    (tmp_path / "common.py").write_text("from deep import *\ndef build_model(): pass\n")
    (tmp_path / "deep.py").write_text("LEARNING_RATE = 1\n")
    (tmp_path / "train.py").write_text(
        "from npu_bridge.npu_init import *\nfrom common import *\nbuild_model(), LEARNING_RATE, NPURunConfig()\n"
    )
    uses = scan.read(str(tmp_path / "train.py")).uses
    assert [(use.names, use.need, use.bare) for use in uses[1:]] == [
        (("npu_bridge.npu_init.NPURunConfig",), scan.NEEDED, True)
    ]


TREE = {
    "train.py": """
import tensorflow as tf
import nets
def main(_):
    Model().fit()
    if FLAGS.evaluate:
        evaluate()
    try:
        profile()
    except Exception:
        pass
def evaluate(): tf.b
def profile(): tf.c
class Model:
    def __init__(self): tf.d
    def fit(self): nets.inference()
    def predict(self): tf.e
if __name__ == "__main__":
    tf.app.run(main)
""",
    "nets.py": "import tensorflow as tf\ntf.f\ndef inference(): tf.g\ndef other(): tf.h\n",
    "unused.py": "import tensorflow as tf\ntf.i\n",
    "net_test.py": "import tensorflow as tf\ntf.j()\n",
}


def test_what_certainly_runs(tmp_path):
    for name, text in TREE.items():
        (tmp_path / name).write_text(text)
    scripts = [scan.read(file) for file in scan.python_files(str(tmp_path))]
    runs = scan_reach.certain(scripts, scan_reach.starting(scripts))
    sure = {u.names[0] for s in scripts for u in s.uses if u.certain and (u.path, u.function) in runs}
    letters = {name[-1] for name in sure if len(name) == len("tensorflow.x")}
    assert letters == {"d", "f", "g"}


def tree(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return [result for result in map(scan.read, scan.python_files(str(folder))) if isinstance(result, scan.Script)]


def running(scripts, start=None):
    """The last letters of the names tf.x that certainly run."""
    starts = [each for each in scripts if each.path.endswith(start)] if start else scan_reach.starting(scripts)
    runs = scan_reach.certain(scripts, starts)
    names = {u.names[0] for s in scripts for u in s.uses if u.certain and (u.path, u.function) in runs}
    return {name[-1] for name in names if len(name) == len("tensorflow.x")}


def test_methods_of_the_classes_in_use_run(tmp_path):
    scripts = tree(tmp_path, {"train.py": """
        import tensorflow as tf
        class Base:
            def fit(self): self.build()
            def build(self): tf.a
        class Net(Base):
            def __init__(self): tf.b
            def build(self): tf.c
            def call(self): tf.d
            def predict(self): tf.e
        class Other:
            def __init__(self): tf.f
            def build(self): tf.g
        Net().fit()
        if FLAGS.other:
            Other().build()
        """})  # fmt: skip
    assert running(scripts) == set("abcd")


def test_a_lambda_that_is_kept_may_never_run(tmp_path):
    scripts = tree(tmp_path, {"train.py": """
        import importlib, tensorflow as tf
        rate = lambda step: tf.a
        dataset.map(lambda x: tf.b)
        tf.c(lambda: inner(lambda: tf.d), true_fn=lambda x: tf.e)
        """})  # fmt: skip
    assert running(scripts) == set("bcde")


def test_an_import_by_name_of_what_is_ours_is_a_use():
    script = 'import importlib\ncrf = importlib.import_module("tensorflow.contrib.crf")\n__import__("hccl.manage.api")'
    assert found(script) == [("tensorflow.contrib.crf", 2), ("hccl.manage.api", 3)]


def test_what_is_imported_runs_wherever_the_import_stands(tmp_path):
    scripts = tree(tmp_path, {
        "train.py": "import tensorflow as tf\nfrom nets import small\nfrom layers import dense\nsmall.model(dense())\n"
                    "def late():\n  import extra\nlate()\n",
        "nets/__init__.py": "import tensorflow as tf\ntf.a\n",
        "nets/small.py": "import tensorflow as tf\ntf.b\ndef model(x): tf.c\ndef dense(): tf.d\n",
        "layers.py": "import tensorflow as tf\ndef dense(): tf.e\n",
        "extra.py": "import tensorflow as tf\ntf.f\n",
        "nets/large.py": "import tensorflow as tf\ntf.g\ndef dense(): tf.h\n",
    })  # fmt: skip
    assert running(scripts, "train.py") == set("abcef")


def test_modules_that_are_nowhere(tmp_path):
    files = {
        "train.py": """
            import json, nets.small, nets.large, no_such_package, folder.deep.inner
            from nets import small, NOTHING
            from . import small
            from .gone import x
            from nets.gone import y
            try:
                import optional_one
            except ImportError:
                optional_one = None
            def f():
                import no_such_package.part
            """,
        "nets/small.py": "import importlib\nimportlib.import_module('nets.lost')\nimportlib.import_module(json)\n",
        "nets/large.py": "import sibling\n",
        "nets/deeper/sibling.py": "",
        "folder/deep/inner.py": "",
    }
    scripts = tree(tmp_path, files)
    lost = modules.lost(scripts, scan.python_files(str(tmp_path)))
    said = [(each.line, each.function, each.certain, each.reason.split("'")[1]) for each in lost]
    assert said == [
        (2, "", True, "nets.lost"),
        (2, "", True, "no_such_package"), (5, "", True, ".gone"), (6, "", True, "nets.gone"),
        (12, "f", True, "no_such_package.part"),
    ]  # fmt: skip


def test_a_script_is_read_with_what_it_imports(tmp_path):
    tree(tmp_path, {
        "train.py": "from nets import small\n", "nets/__init__.py": "", "nets/small.py": "from . import base\n",
        "nets/base.py": "", "other.py": "import nets\n", "by_name.py": "__import__(name)\n",
    })  # fmt: skip
    read = [path[len(str(tmp_path)) + 1 :] for path in scan.own_files(str(tmp_path / "train.py"))]
    assert read == ["train.py", "nets/__init__.py", "nets/small.py", "nets/base.py"]
    assert len(scan.own_files(str(tmp_path / "by_name.py"))) == 6


def test_calls_by_the_names_of_arguments():
    script = """
    import tensorflow as tf
    from npu_bridge.npu_init import *
    tf.layers.dense(x, unit=3, **more)
    NPURunConfig(mode=1)
    def own(a): pass
    own(a=1)
    try: tf.nn.relu(x, other=1)
    except AttributeError: pass
    """
    calls = scan_reader.script(textwrap.dedent(script)).calls
    assert [(call.names[0], call.line, call.keywords) for call in calls] == [
        ("tensorflow.layers.dense", 4, ("unit",)), ("npu_bridge.npu_init.NPURunConfig", 5, ("mode",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "keywords", "wrong"),
    [
        ("textwrap.indent", ["prefix", "prefx"], "prefx"),
        ("textwrap.indent", ["prefix"], ""),
        ("json.dumps", ["anything"], ""),  # **kw
        ("textwrap.no_such_name", ["a"], ""),  # said elsewhere
        ("sys.flags.attribute_of_an_object", ["a"], ""),
        ("os.getpid", ["a"], "a"),
    ],
)
def test_arguments_that_a_function_does_not_take(name, keywords, wrong):
    assert symbols.refused(name, keywords)[0] == wrong
