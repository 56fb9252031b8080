"""What there is of tf.contrib: one row a module, name -> module that holds it."""

import importlib
import sys

from npu_shim.rewriter.errors import nearest

MODULES = {"mixed_precision": "npu_shim.loss_scale.contrib"}
# `import tensorflow.contrib.mixed_precision` finds the modules themselves
__path__ = []


def __getattr__(name):
    if name in MODULES:
        module = importlib.import_module(MODULES[name])
        sys.modules["tensorflow.contrib." + name] = module
        return module
    raise AttributeError(
        "npu_shim: tf.contrib.%s is not here%s; there is tf.contrib.%s"
        % (name, nearest(name, MODULES), ", tf.contrib.".join(sorted(MODULES)))
    )
