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
# what scikit-learn sets for good when it is imported, and pytest for each test
OF_OTHERS = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "MOSAIC_GPU_CUDA_ROOT", "PYTEST_CURRENT_TEST")
RESOURCES, CONTROL_FLOW = "resource variables are on", "control flow of version 2 is on"
VERBOSITY = "the verbosity of tf.logging"
ASKED = "what scripts have asked of npu_shim"
# what a script sets for the rest of its process: module and name of a dictionary or a list
SETTINGS = (
    ("npu_shim.distributed.job.ranks", "_groups"),
    ("npu_shim.distributed.job.ranks", "_splits"),
    ("npu_shim.distributed.sharding.shards", "_items"),
    ("npu_shim.options.entrances.plugin", "_given"),
    ("npu_shim.options.entrances.forced", "_enabled"),
)
KERAS = ("keras.src.backend", "keras.backend", "tf_keras.src.backend", "tensorflow.python.keras.backend")


def environment():
    return {key: value for key, value in os.environ.items() if key not in OF_OTHERS}


def loggers():
    logs = [logging.getLogger(name) for name in (*OURS, "tensorflow", "absl")]
    return {
        log.name: (log.getEffectiveLevel(), log.propagate, log.disabled, list(map(repr, log.handlers))) for log in logs
    }


def signals():
    return {name: repr(signal.getsignal(name)) for name in (signal.SIGINT, signal.SIGTERM)}


def finders():
    """Those of ours: libraries add theirs for good when they are imported."""
    return [type(finder).__name__ for finder in sys.meta_path if type(finder).__module__.partition(".")[0] in OURS]


def settings():
    return {"%s.%s" % named: repr(held) for named, held in _settings().items() if held}


def forget_settings():
    for held in _settings().values():
        held.clear()


def _settings():
    """Those of the modules that are imported: an import alone sets nothing."""
    return {named: getattr(sys.modules[named[0]], named[1]) for named in SETTINGS if named[0] in sys.modules}


PROCESS = {
    "environment variables": environment,
    "sys.path": lambda: list(sys.path),
    "sys.argv": lambda: list(sys.argv),
    "our finders in sys.meta_path": finders,
    "the working folder": os.getcwd,
    "loggers": loggers,
    "signal handlers": signals,
    ASKED: settings,
}


def tensorflow():
    return sys.modules["tensorflow"].compat.v1


def sessions_are_patched():
    patch = sys.modules.get("npu_shim.session.interception.patch")
    return bool(patch) and patch.is_patched()


def keras_session():
    return [repr(backend._SESSION.session) for backend in _keras_with_a_session()]


def forget_keras_session():
    """Keras keeps the session that a test gave it, or that it made by itself."""
    for backend in _keras_with_a_session():
        backend.set_session(None)


def _keras_with_a_session():
    backends = (sys.modules.get(name) for name in KERAS)
    return [backend for backend in backends if getattr(getattr(backend, "_SESSION", None), "session", None) is not None]


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
    """Lets a file's tests begin with the same random numbers and TensorFlow's own sessions, whatever ran before."""
    random.seed(0)
    if sessions_are_patched():  # by an import of another file
        sys.modules["npu_shim.session.interception.patch"].unpatch()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def put_back(before):
    """Puts back what a file has changed, as far as that can be: the next file meets what this one met."""
    if not before[ASKED]:
        forget_settings()
    os.chdir(before["the working folder"])
    for name in {*os.environ} - {*before["environment variables"], *OF_OTHERS}:
        del os.environ[name]
    os.environ.update(before["environment variables"])
    sys.path[:], sys.argv[:] = before["sys.path"], before["sys.argv"]
    if RESOURCES in before:
        tf = tensorflow()
        (tf.enable_resource_variables if before[RESOURCES] else tf.disable_resource_variables)()
        (tf.enable_control_flow_v2 if before[CONTROL_FLOW] else tf.disable_control_flow_v2)()
        tf.logging.set_verbosity(before[VERBOSITY])
