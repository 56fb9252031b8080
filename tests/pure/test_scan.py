"""Reading what scripts use: scripts as text in, names with lines out."""

import textwrap

import pytest

from npu_shim.cli.scripts import scan as command
from npu_shim.compat.scan import files as scan
from npu_shim.compat.scan import modules, objects, symbols
from npu_shim.compat.scan import reach as scan_reach
from npu_shim.compat.scan import reader as scan_reader


def names_used(script):
    """[(names, line, need)] with the names of a use joined by "|" and NEEDED left out."""
    result = []
    for use in scan.uses(textwrap.dedent(script)):
        one = ("|".join(use.names), use.line)
        result.append(one if use.need == scan.NEEDED else (*one, use.need))
    return result


def names(script):
    return [use[0] for use in names_used(script)]


def test_attributes_of_an_imported_module():
    script = """
    import tensorflow as tf
    x = tf.placeholder(tf.float32, name="x")
    tf.nn.relu(x).eval()
    """
    assert names_used(script) == [
        ("tensorflow", 2),
        ("tensorflow.float32", 3),
        ("tensorflow.placeholder", 3),
        ("tensorflow.nn.relu", 4),
        ("tensorflow.nn.relu().eval", 4),
    ]


OBJECTS = {
    "x = tf.A()\nx.b(x.c).d": ["A().b", "A().b().d", "A().c"],
    "x = tf.A().b\nx.c": ["A().b", "A().b.c"],
    "with tf.A() as x, f() as y:\n  x.b; y.b": ["A().__enter__().b"],
    "x = tf.A()\nx = x.b()\nx.c": ["A().b", "A().b().c"],
    # all that a name may be bound to; what is unknown may have it too
    "x = tf.A()\nif y:\n  x = tf.B()\nx.c": ["A().c|B().c"],
    "x = tf.A()\nfor y in z:\n  x = tf.B()\nx.c": ["A().c|B().c"],
    "x = tf.A()\nif y:\n  x = f()\nx.c": ["A().c?"],
    "try:\n  x = tf.A()\nexcept E:\n  x = f()\nx.c": ["A().c?"],
    "x = tf.A()\nx = f()\nx.c": [],
    "def f(x=tf.A()):\n  x.c": [],
    "for x in tf.A():\n  x.c": [],
    "x, y = tf.A(), 1\nx.c": [],
    "x = tf.A()\nx += 1\nx.c": [],
    # a function sees what a name around it may be when it is called
    "x = tf.A()\ndef f():\n  x.c": ["A().c"],
    "x = tf.A()\ndef f():\n  x.c\nx = g()": ["A().c?"],
    "x = tf.A()\ndef f():\n  global x\n  x = g()\ndef h():\n  x.c": [],
    "def f():\n  x = tf.A()\n  def g():\n    nonlocal x\n    x = h()\n  x.c": [],
    # a script may ask first
    "x = tf.A()\nif hasattr(x, 'c'):\n  x.c": ["A().c?"],
    "x = tf.A()\nx.c = 1": ["A().c="],
    # attributes of self
    "class N:\n  def f(self):\n    self.x.c\n  def g(self):\n    self.x = tf.A()": ["A().c"],
    "class N:\n  def f(self):\n    self.y.c\n  def g(self):\n    self.y = self.x.b()\n    self.x = tf.A()": [
        "A().b", "A().b().c"
    ],
    "class N:\n  x = None\n  def g(self):\n    self.x = None\n    self.x = tf.A()\n    self.x.c": ["A().c"],
    "class N(tf.B):\n  def g(self):\n    self.x = tf.A()\n    self.x.c": ["A().c", "B"],
    "class N:\n  def g(self):\n    self.x = tf.A()\n    self.x.c\n  def h(self):\n    self.x = h()": ["A().c?"],
    "class N:\n  def g(self):\n    self.x = tf.A()\n    self.x.c\nN().x = h()": [],
    "class N:\n  def g(self, n):\n    setattr(self, n, 1)\n    self.x = tf.A()\n    self.x.c": [],
    "class N(Base):\n  def g(self):\n    self.x = tf.A()\n    self.x.c": [],
    "class N:\n  def g(self):\n    self.x = tf.A()\n    self.x.c\nclass M(N):\n  def g(self):\n    self.x = h()": [
        "A().c?"
    ],
    "class N:\n  def g(self):\n    self.x = tf.A()\n    self.x.c\nclass M:\n  def g(self):\n    self.x = h()": [
        "A().c"
    ],
}  # fmt: skip


@pytest.mark.parametrize("script", OBJECTS)
def test_objects_are_followed_where_nothing_else_can_be_meant(script):
    ends = {scan.OPTIONAL: "?", scan.SET: "="}
    read = [
        ("|".join(use.names) + ends.get(use.need, "")).replace("tensorflow.", "")
        for use in scan.uses("import tensorflow as tf\n" + script)
    ]
    bare = {"tensorflow", "A", "A?", "B"}.difference(OBJECTS[script])
    assert sorted(set(read) - bare) == OBJECTS[script]


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
    assert names("import scipy as np, os.path\nfrom . import tensorflow\nfrom .tensorflow import x\nnp.a; x.c") == []
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
    assert names_used(script) == [
        ("npu_bridge.npu_init", 2), ("npu_bridge.npu_init.NPURunConfig", 4), ("tensorflow.nn.relu", 4),
    ]  # fmt: skip


def test_with_a_star_import_of_the_users_own_a_bare_name_is_a_guess():
    script = "from npu_bridge.npu_init import *\nfrom common import *\nNPURunConfig, build_model"
    assert names_used(script)[1:] == [
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
    assert names_used(script)[1:] == [
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
    assert all(len(use) == 2 for use in names_used(script))
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
    many = command.Report({str(n): [] for n in range(9999)}, {}, set(), [], [], [], [], False, [])
    one_short = command.summary(many._replace(lost={"tensorflow.x"}), 1, "2.15.1")
    assert one_short == "9999 of 10000 symbols resolve under TensorFlow 2.15.1 (99.9 %); 1 file"
    refused = command.summary(many._replace(lost={"0"}), 1, "2.15.1")  # it is there, but not with this argument
    assert refused == "9998 of 9999 symbols resolve under TensorFlow 2.15.1 (99.9 %); 1 file"
    whole = command.summary(many._replace(unread=["old.py"]), 3, "2.15.1")
    assert whole.endswith("(all, by name; values are not seen); 3 files, 1 of them cannot be read")
    assert "(it needs a, b and c); 1 file" in command.summary(many._replace(needs=["a", "b", "c"]), 1, "2.15.1")


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
    assert names_used(script)[1:] == [
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
    assert [use for use in names_used(script) if "tensorflow." in use[0]] == [
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
    starts = [script for script in scripts if script.path.endswith(start)] if start else scan_reach.starting(scripts)
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
    assert names_used(script) == [("tensorflow.contrib.crf", 2), ("hccl.manage.api", 3)]


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
    said = [(loss.line, loss.function, loss.certain, loss.reason.split("'")[1]) for loss in lost]
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


class Box:
    """A class that has what a script may ask for in several ways."""

    def __init__(self):
        self.first, self.other = 1, 2

    @property
    def shown(self):
        return self.first

    def method(self, given):
        return given


class Answering(Box):
    def __getattr__(self, name):
        return name


class Growing(Box):
    def add(self, name):
        setattr(self, name, 1)


class Closed(Box):
    def __getattr__(self, name):
        raise AttributeError(name)


@pytest.mark.parametrize(
    ("name", "is_there"),
    [(name, True) for name in ("first", "other", "shown", "method", "_private", "__init__")]
    + [("given", False), ("mode", False)],
)
def test_what_objects_of_a_class_have(name, is_there):
    assert objects.has(objects.Object("Box", (Box,)), name) is is_there
    assert objects.has(objects.Object("Box", (Closed,)), name) is is_there
    for kinds in [(Answering,), (Growing,), (Box, Growing)]:
        assert objects.has(objects.Object("Box", kinds), name)


def test_what_methods_give():
    class Layer(Box):
        def __call__(self):
            return self.first

    class Inner(Layer):
        pass

    class Own(Layer):
        def method(self, given):
            return self

    class Cell(Layer):
        def __call__(self):
            return self.first, self.other

    class Unlike:
        pass

    box = objects.Object("Box", (Box,))
    table = {(Box, "method()"): box, (Layer, "__call__()"): box}

    def given(name, *kinds):
        return objects.result(objects.Member(objects.Object("x", kinds), name), "()", table)

    assert given("method", Inner) is given("method", Own, Box, Unlike) is given("__call__", Inner) is box
    assert given("method", Unlike) is given("method", int) is given("method", Own) is None
    assert given("__call__", Cell) is None


class Choosing(type):
    def __call__(cls, *arguments):
        return type.__call__(Chosen)


class Asked(metaclass=Choosing):
    pass


class Left(Asked):
    pass


class Chosen(Asked):
    def handle(self):
        return 1


def test_a_metaclass_may_make_something_else():
    assert objects.has(objects.constructed(Left, "Left"), "handle")
    assert not objects.has(objects.constructed(Left, "Left"), "hundle")
    assert objects.constructed(Box, "Box").kinds == (Box,)


def test_with_gives_the_object_itself():
    class Entered(Box):
        def __enter__(self):
            return self

    class Inner(Entered):
        pass

    owner, table = objects.Object("Inner", (Inner,)), {(Entered, "__enter__()"): objects.Object("Box", (Entered,))}
    assert objects.result(objects.Member(owner, "__enter__"), "()", table) is owner


@pytest.mark.parametrize(
    ("name", "keywords", "wrong"),
    [
        ("textwrap.indent", ["prefix", "prefx"], "prefx"),
        ("textwrap.indent", ["prefix"], ""),
        ("json.dumps", ["anything"], ""),  # **kw
        ("textwrap.no_such_name", ["a"], ""),  # said elsewhere
        ("sys.flags.attribute_of_an_object", ["a"], ""),
        ("os.getpid", ["a"], "a"),
        ("threading.Thread().join", ["timeot"], "timeot"),
        ("threading.Thread().join", ["timeout"], ""),
        ("threading.Thread().no_such_method", ["a"], ""),
    ],
)
def test_arguments_that_a_function_does_not_take(name, keywords, wrong):
    assert symbols.refused(name, keywords)[0] == wrong
