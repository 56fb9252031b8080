"""What TensorFlow 1.15's test files import that no script sees: the helpers of TensorFlow's own tests.

None of these changes what a method tests: helper modules of the tree that no wheel has, `portpicker`, helpers that lie
elsewhere today, and arguments of helpers that they no longer take.
"""

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import socket
import sys
import types
import unittest

from tree import HELPERS

TOLERANCE = "TF115_TOLERANCE"  # in the environment: `--option TF115_TOLERANCE=0.005`, for low precision
MANAGERS = "TF115_MANAGERS"  # likewise, npu_bridge: its loss-scale managers and optimizer stand in for contrib's
GPU = "TF115_GPU"  # likewise, pretended: Grappler's tests of mixed precision run on CPUs, where our rewriter lowers too
AHEAD = "TF115_AHEAD"  # likewise, 1: each run that reads an iterator has the engine read the next batch, as a step has
EVERY_RUN = "TF115_EVERY_RUN"  # likewise, a file: the engine takes each run that computes anything, see every_run.py
# packages of helpers; those of 1.15.5's wheel count only where TensorFlow is another
PACKAGES = ("tensorflow.contrib.graph_editor.tests",)
NO_MORE = tuple("tensorflow.contrib.testing" + inner for inner in ("", ".python", ".python.framework"))
# what unittest dropped in Python 3.12
UNITTEST = {
    "assertEquals": "assertEqual", "assertNotEquals": "assertNotEqual", "assertAlmostEquals": "assertAlmostEqual",
    "assertRaisesRegexp": "assertRaisesRegex", "assertRegexpMatches": "assertRegex", "assert_": "assertTrue",
}  # fmt: skip
# names of contrib.mixed_precision in two modules -> the vendor's
NPU_NAMES = {
    "manager": {name: name for name in ("FixedLossScaleManager", "ExponentialUpdateLossScaleManager")},
    "optimizer": {"LossScaleOptimizer": "NPULossScaleOptimizer"},
}  # fmt: skip
# Keras's own helpers; should_run_tf_function chose between two ways to train, of which one is left
KERAS = ("keras.src.testing_infra.test_utils", "tf_keras.src.testing_infra.test_utils")
# a helper of 1.15 -> where TensorFlow 2 has it, the first that is there
MOVED = {
    "tensorflow.python.keras.mixed_precision.experimental.test_util": (
        "keras.src.mixed_precision.test_util", "tf_keras.src.mixed_precision.test_util",
    ),
}  # fmt: skip


def install(folder, original):
    """Gives the files `portpicker`, and the helpers that lie in `folder`, the tree.

    Args:
        folder: path of the tree.
        original: whether this is 1.15.5; under npu-shim TensorFlow says so too.
    """
    sys.meta_path.insert(0, _Helpers(folder, original))
    if importlib.util.find_spec("portpicker") is None:
        module = types.ModuleType("portpicker")
        module.pick_unused_port = pick_unused_port
        sys.modules["portpicker"] = module
    for old, new in UNITTEST.items():
        if not hasattr(unittest.TestCase, old):
            setattr(unittest.TestCase, old, getattr(unittest.TestCase, new))
    from tensorflow.python.framework import test_util  # noqa: TID251
    from tensorflow.python.training.experimental import mixed_precision  # noqa: TID251

    mixed_precision.auto_mixed_precision_scope = _auto_mixed_precision_scope
    if "reset_test" not in test_util.run_in_graph_and_eager_modes.__code__.co_varnames:
        test_util.run_in_graph_and_eager_modes = _always_reset(test_util.run_in_graph_and_eager_modes)
    changes = {
        TOLERANCE: _tolerate, MANAGERS: _stand_in, GPU: _pretend_a_gpu, AHEAD: _read_ahead, EVERY_RUN: _take_every_run,
    }  # fmt: skip
    for name, change in changes.items():
        if os.environ.get(name):
            change(os.environ[name])
    keras = next((name for name in KERAS if _is_there(name)), None)
    if keras is not None and not original:
        for name in (keras, "tensorflow.python.keras.testing_utils"):  # by the paths of today and of 1.15
            utils = importlib.import_module(name)
            utils.should_run_tf_function = getattr(utils, "should_run_tf_function", lambda: True)
        _loop_both_ways()
        sys.modules["tensorflow.python.eager.execution_callbacks"] = _execution_callbacks()


def _execution_callbacks():
    """1.15's module that looks at what eager ops give, by tf.debugging, which took its place."""
    import tensorflow as tf

    @contextlib.contextmanager
    def errstate(inf_or_nan=None):
        if inf_or_nan is not None:
            tf.debugging.enable_check_numerics()
        try:
            yield
        finally:
            tf.debugging.disable_check_numerics()

    module = types.ModuleType("tensorflow.python.eager.execution_callbacks")
    module.ExecutionCallback = types.SimpleNamespace(RAISE="raise")
    module.errstate = errstate
    return module


def _pretend_a_gpu(_):
    """Has tests that ask for a GPU run."""
    from tensorflow.python.platform import test  # noqa: TID251

    test.is_gpu_available = lambda *args, **kwargs: True


def _read_ahead(_):
    """Has each run of a session that reads an iterator begin to read what the next one would, as training steps do."""
    from npu_shim.engine.sessions import Engine

    plain = Engine._in_session

    def reading(self, access, once, nodes, fetches, feed_dict, *others):
        done = plain(self, access, once, nodes, fetches, feed_dict, *others)
        self._ahead.ask(nodes, [getattr(tensor, "name", tensor) for tensor in feed_dict or ()])
        return done

    Engine._in_session = reading


def _take_every_run(path):
    import every_run  # of the engine, which few have

    every_run.install(path)


@contextlib.contextmanager
def _auto_mixed_precision_scope(enable):
    """NVIDIA's, by ours: the tree has it, 1.15.5 has not."""
    from npu_shim.options.ops.scopes import keep_dtype_scope

    with contextlib.nullcontext() if enable else keep_dtype_scope():
        yield


def _stand_in(package):
    """Puts a package's loss-scale managers and optimizer where the tests of tf.contrib.mixed_precision find its own."""
    contrib = "tensorflow.contrib.mixed_precision.python.loss_scale_"
    for module, names in NPU_NAMES.items():
        theirs = importlib.import_module("%s.estimator.npu.npu_loss_scale_%s" % (package, module))
        for name, other in names.items():
            setattr(importlib.import_module(contrib + module), name, getattr(theirs, other))


def _tolerate(word):
    """Makes comparisons of arrays tolerate at least so much, relative and absolute: the numbers are float32's."""
    from tensorflow.python.framework import test_util  # noqa: TID251

    case, least = test_util.TensorFlowTestCase, float(word)
    compare = case._assertArrayLikeAllClose

    def tolerant(self, a, b, rtol=1e-6, atol=1e-6, msg=None):
        return compare(self, a, b, max(rtol, least), max(atol, least), msg)

    case._assertArrayLikeAllClose = tolerant


def _loop_both_ways():
    """Gives the test case of vectorized loops its method of 1.15, which takes the dtypes of a loop's results."""
    from tensorflow.python.ops.parallel_for import control_flow_ops, test_util  # noqa: TID251

    def _test_loop_fn(self, loop_fn, iters, loop_fn_dtypes=None, parallel_iterations=None):
        import tensorflow as tf

        dtypes = tf.float32 if loop_fn_dtypes is None else loop_fn_dtypes
        vectorized = control_flow_ops.pfor(loop_fn, iters, parallel_iterations=parallel_iterations)
        looped = control_flow_ops.for_loop(loop_fn, dtypes, iters, parallel_iterations=parallel_iterations)
        self.run_and_assert_equal(vectorized, looped)

    test_util.PForTestCase._test_loop_fn = _test_loop_fn


def _is_there(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _always_reset(decorate):
    """Takes `reset_test`: today's decorator always sets a test up again between its runs, 1.15's by default."""

    @functools.wraps(decorate)
    def taking_it(func=None, reset_test=True, **kwargs):
        return decorate(func, **kwargs)

    return taking_it


class _Helpers(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folder, original):
        self._original = original
        self._files = {path[:-3].replace("/", "."): os.path.join(folder, path) for path in HELPERS}

    def find_spec(self, fullname, path=None, target=None):
        if fullname in MOVED and not self._original:
            return importlib.machinery.ModuleSpec(fullname, self)
        if fullname in PACKAGES or (fullname in NO_MORE and not self._original):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        file = self._files.get(fullname)
        return file and importlib.util.spec_from_file_location(fullname, file)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        for name in MOVED.get(module.__name__, ()):
            if _is_there(name):
                sys.modules[module.__name__] = importlib.import_module(name)
                return


def pick_unused_port():
    """A TCP port of this machine that nothing listens on."""
    with socket.socket() as listening:
        listening.bind(("", 0))
        return listening.getsockname()[1]
