"""The launcher is `python SCRIPT`, and spawned processes see what it made; one process runs all."""

import json
import os
import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, pickle, sys
class Here:
    there: int = 0
before = dict(file=globals().get("__file__"), path=sys.path[0], argv=sys.argv, name=__name__)
before["builtins"] = type(__builtins__).__name__
before["pickled"] = type(pickle.loads(pickle.dumps(Here()))) is Here
before["annotated"] = Here.__annotations__["there"] is int
os.chdir("inner")
before["after chdir"] = "__file__" in globals() and os.path.exists(__file__)
print("FACTS " + json.dumps(before))
def hook(kind, error, trace):
    print("HOOK", kind.__name__, error, os.path.basename(trace.tb_frame.f_code.co_filename), trace.tb_lineno)
sys.excepthook = hook
os.chdir("..")
raise ValueError("let through")
"""
SPAWN = """
import multiprocessing
import tensorflow as tf

class Result(int):
    pass

def child(value):
    with tf.Graph().as_default(), tf.Session() as session:  # TensorFlow 1's names
        return Result(session.run(tf.placeholder_with_default(value, []) * 2))

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("SPAWNED", *pool.map_async(child, [1, 2]).get(timeout=300))
"""
OWN_KERAS = """
import tensorflow as tf
before = tf.keras.layers.Dense, tf.layers.Dense  # TensorFlow, asked first, took the script's own keras for its own
import keras
from keras.layers import Dense
from tensorflow.python.keras.layers import Dense as TheirDense
assert issubclass(tf.nn.rnn_cell.LSTMCell, tf.layers.Layer)
model = tf.keras.Sequential([TheirDense(2, input_shape=(3,))])
print("KERAS", keras.__file__.endswith("__init__.py") and keras.whose, Dense, model.count_params())
"""
# what a shell starts, and what that starts; the environment's python comes first on the PATH
STARTS = """
import os, subprocess, sys
print("STARTED", subprocess.call("python child.py 2; exit $?", shell=True), sys.begun, flush=True)
code = (  # TensorFlow 1 may have no Keras beside it
    "try: import keras\\nexcept ImportError: from tensorflow import keras\\n"
    "import tensorflow as tf; print('CODE', keras.models.Model is tf.keras.models.Model)"
)
subprocess.call([sys.executable, "-c", code])
subprocess.call([sys.executable, "late.py"])
"""
LATE = """
import multiprocessing, sys
def child(queue):
    import tensorflow as tf
    queue.put((hasattr(tf, "placeholder"), sys.begun))
if __name__ == "__main__":  # TensorFlow is not here yet
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print("LATE", *queue.get(timeout=300), "tensorflow" in sys.modules, flush=True)
    process.join()
"""
CHILD = """
import sys
from tensorflow.python.ops import math_ops  # the first that it asks for is a part of TensorFlow
import numpy as np
import tensorflow as tf
if sys.argv[1] == "2":
    import subprocess
    subprocess.call([sys.executable, __file__, "1"])
with tf.Session() as session:
    value = session.run(math_ops.square(tf.placeholder_with_default(np.float(sys.argv[1]), [])))
print("CHILD", sys.argv[1], value, __name__, sys.begun, flush=True)
sys.exit(int(value))
"""
FORMS = {
    "link": ["folder/link.py", "a b", "-x"],
    "stdin": ["-", "word"],
    "module": ["-m", "made", "-y"],
    "packed": ["packed", "word"],
    "archive": ["packed.zip", "word"],
}
EVERY = """
import functools, io, json, os, sys
from npu_shim.compat import launcher
script, forms = json.loads(sys.argv[1])
print("FORM keras", flush=True)
print("STATUS", launcher.run("own/script.py", []), flush=True)
for form, (first, *rest) in forms.items():
    print("FORM", form, flush=True)
    hook, path = sys.excepthook, list(sys.path)
    sys.stdin = io.TextIOWrapper(io.BytesIO(script.encode()))
    print("STATUS", launcher.run(first, rest), flush=True)
    sys.excepthook, sys.path[:] = hook, path
print("FORM spawn", flush=True)
launcher.run("spawn.py", [])
print("FORM started", flush=True)
launcher.run("starts.py", [], functools.partial(exec, "import sys; sys.begun = 'yes'"))
print("FORM interrupt", flush=True)
launcher.run("interrupt.py", [])
"""
INTERRUPT = """
import atexit
atexit.register(print, "at exit", flush=True)
raise KeyboardInterrupt("by the script")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("scripts")
    for name in ("folder", "real", "inner", "own", "own/keras", "packed"):
        (root / name).mkdir()
    (root / "own" / "script.py").write_text(OWN_KERAS)
    (root / "own" / "keras" / "__init__.py").write_text("whose = 'the script'\n")
    (root / "own" / "keras" / "layers.py").write_text("Dense = 'of the script'\n")
    (root / "real" / "script.py").write_text(SCRIPT)
    (root / "made.py").write_text(SCRIPT)
    (root / "packed" / "__main__.py").write_text(SCRIPT)
    shutil.make_archive(str(root / "packed"), "zip", str(root / "packed"))
    (root / "spawn.py").write_text(SPAWN)
    (root / "starts.py").write_text(STARTS)
    (root / "late.py").write_text(LATE)
    (root / "child.py").write_text(CHILD)
    (root / "interrupt.py").write_text(INTERRUPT)
    (root / "folder" / "link.py").symlink_to(root / "real" / "script.py")
    return root


@pytest.fixture(scope="module")
def ours(folder):
    """{form: lines of output} of every form, run by the launcher in one process; its status, and what it reports."""
    argv = [sys.executable, "-W", "ignore", "-c", EVERY, json.dumps([SCRIPT, FORMS])]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(folder), "PATH": path}
    done = subprocess.run(argv, cwd=str(folder), env=env, capture_output=True, text=True, check=False, timeout=600)
    forms = {"status": done.returncode, "reported": done.stderr}
    for part in done.stdout.split("FORM ")[1:]:
        lines = part.splitlines()
        forms[lines[0]] = lines[1:]
    return forms


@pytest.mark.parametrize("form", FORMS)
def test_it_is_python_itself(folder, ours, form):
    done = subprocess.run(
        [sys.executable, *FORMS[form]], cwd=str(folder), input=SCRIPT, stdout=subprocess.PIPE, text=True, check=False
    )
    wanted = [line for line in done.stdout.splitlines() if line.startswith(("FACTS", "HOOK"))]
    lines = [line for line in ours[form] if line.startswith(("FACTS", "HOOK"))]
    assert len(wanted) == 2
    facts, as_python = json.loads(lines[0][6:]), json.loads(wanted[0][6:])
    assert facts == as_python
    assert lines[1].split()[:4] == wanted[1].split()[:4]
    assert lines[1] == wanted[1] or form in ("module", "packed", "archive")  # there, runpy's own frames come first
    assert ours[form][-1] == "STATUS %d" % done.returncode


def test_an_interrupt_ends_the_process_as_python_ends_it(folder, ours):
    done = subprocess.run(
        [sys.executable, "interrupt.py"], cwd=str(folder), capture_output=True, text=True, check=False
    )
    assert (ours["interrupt"], ours["status"]) == (done.stdout.splitlines(), done.returncode)
    assert ours["reported"].count("KeyboardInterrupt: by the script") == 1
    assert "launcher.py" not in ours["reported"]


def test_spawned_processes_see_tensorflow_1(ours):
    assert "SPAWNED 2 4" in ours["spawn"]


def test_a_keras_of_the_scripts_own_goes_before_the_installed_one(ours):
    assert ours["keras"][-2:] == ["KERAS the script of the script 8", "STATUS 0"]


def test_programs_that_a_script_starts_see_tensorflow_1(ours):
    wanted = ["CHILD 1 1.0 __main__ yes", "CHILD 2 4.0 __main__ yes", "STARTED 4 yes", "CODE True"]
    wanted.append("LATE True yes False")
    assert [line for line in ours["started"] if line.startswith(("CHILD", "STARTED", "CODE", "LATE"))] == wanted
