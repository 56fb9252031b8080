"""What a file of tests must leave as it found it, so that files run in any order: one function for each thing.

A function takes no argument and returns a value that can be compared; `TENSORFLOW` are asked only once TensorFlow has
been imported.
"""

import logging
import os
import random
import signal
import sys

OURS = ("npu_shim", "npu_bridge", "hccl")
RESOURCES, CONTROL_FLOW = "resource variables are on", "control flow of version 2 is on"
VERBOSITY = "the verbosity of tf.logging"
KERAS = ("keras.src.backend", "keras.backend", "tf_keras.src.backend", "tensorflow.python.keras.backend")


class LeftBehind(UserWarning):
    """A file of tests has changed what the next ones meet.

    It stands here, and not in conftest.py, since pytest-xdist looks it up by the name of its module.
    """


def environment():
    return {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}


def loggers():
    logs = [logging.getLogger(name) for name in (*OURS, "tensorflow", "absl")]
    return {log.name: (log.level, log.propagate, log.disabled, list(map(repr, log.handlers))) for log in logs}


def signals():
    return {name: repr(signal.getsignal(name)) for name in (signal.SIGINT, signal.SIGTERM)}


def finders():
    return [type(finder).__name__ for finder in sys.meta_path]


PROCESS = {
    "environment variables": environment,
    "sys.path": lambda: list(sys.path),
    "sys.argv": lambda: list(sys.argv),
    "sys.meta_path": finders,
    "the working folder": os.getcwd,
    "loggers": loggers,
    "signal handlers": signals,
}


def tensorflow():
    return sys.modules["tensorflow"].compat.v1


def sessions_are_patched():
    patch = sys.modules.get("npu_shim.session.patch")
    return bool(patch) and patch.is_patched()


def keras_session():
    backends = (sys.modules.get(name) for name in KERAS)
    held = [getattr(getattr(backend, "_SESSION", None), "session", None) for backend in backends if backend]
    return [repr(session) for session in held if session is not None]


TENSORFLOW = {
    RESOURCES: lambda: tensorflow().resource_variables_enabled(),
    CONTROL_FLOW: lambda: tensorflow().control_flow_v2_enabled(),
    "eager execution is on": lambda: tensorflow().executing_eagerly(),
    "tensors compare by value": lambda: getattr(tensorflow().Tensor, "_USE_EQUALITY", None),
    VERBOSITY: lambda: tensorflow().logging.get_verbosity(),
    "the default session": lambda: repr(tensorflow().get_default_session()),
    "sessions are patched": sessions_are_patched,
    "the session of Keras": keras_session,
    "the module tensorflow": lambda: type(sys.modules["tensorflow"]).__name__,
}


def looks():
    """Returns what there is now: name -> value."""
    asked = {**PROCESS, **(TENSORFLOW if hasattr(sys.modules.get("tensorflow"), "compat") else {})}
    return {name: look() for name, look in asked.items()}


def differences(before, after):
    """Returns a line for each thing that is in both and differs."""
    return [
        "%s: %s" % (name, _change(before[name], after[name]))
        for name in before
        if name in after and before[name] != after[name]
    ]


def _change(before, after):
    if isinstance(before, dict):
        keys = sorted((key for key in {**before, **after} if before.get(key) != after.get(key)), key=str)
        return ", ".join("%s %r -> %r" % (key, before.get(key), after.get(key)) for key in keys)
    return "%r -> %r" % (before, after)


def begin_alike():
    """Lets a file's tests begin with the same random numbers, whatever ran before."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def put_back(before):
    """Puts back what a file has changed, as far as that can be: the next file meets what this one met."""
    os.chdir(before["the working folder"])
    for name in {*os.environ} - {*before["environment variables"], "PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update(before["environment variables"])
    sys.path[:], sys.argv[:] = before["sys.path"], before["sys.argv"]
    if RESOURCES in before:
        tf = tensorflow()
        (tf.enable_resource_variables if before[RESOURCES] else tf.disable_resource_variables)()
        (tf.enable_control_flow_v2 if before[CONTROL_FLOW] else tf.disable_control_flow_v2)()
        tf.logging.set_verbosity(before[VERBOSITY])
