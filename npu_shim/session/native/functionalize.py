"""Calls TensorFlow's conversion of v1 control flow through a few lines of C++, built at the first use."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.session.native import build

SOURCES = (os.path.join(os.path.dirname(os.path.abspath(__file__)), "functionalize.cc"),)
LIBRARIES = ("-l:libtensorflow_cc.so.2",)
_ANSWER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)


class FunctionalizeError(ValueError):
    """TensorFlow could not convert a loop or conditional; the message is TensorFlow's."""


def functionalize(graph_def: tf.GraphDef) -> tf.GraphDef:
    """Returns a GraphDef in which v1 loops and conditionals are converted into While and If.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.

    Raises:
        FunctionalizeError: this TensorFlow cannot convert a loop or conditional, or none at all.
        build.BuildError: no compiler.
    """
    if tf.__version__.startswith("1."):
        raise FunctionalizeError("TensorFlow %s cannot convert it, 2.15 can" % tf.__version__)
    answers = []
    graph = graph_def.SerializeToString()
    keep = _ANSWER(lambda data, size: answers.append(ctypes.string_at(data, size)))
    if _library().npu_shim_functionalize(graph, len(graph), keep):
        raise FunctionalizeError(answers[0].decode("utf-8", "replace"))
    return tf.GraphDef.FromString(answers[0])


@functools.lru_cache(maxsize=None)
def _library() -> Any:
    library = build.load(SOURCES, LIBRARIES)
    library.npu_shim_functionalize.argtypes = [ctypes.c_char_p, ctypes.c_size_t, _ANSWER]
    return library
