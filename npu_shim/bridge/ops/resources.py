"""Opening and closing the device, which off the NPU means sessions and nothing else.

Source: Ascend adapter of 2023-12 (r1.15), npu_init, npu_ops and npu_plugin.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import ranks
from npu_shim.options.entrances import config_proto
from npu_shim.rewriter import tf_internals

_values = {}  # what a job remembers about itself, by name


def initialize_system(name: str | None = None) -> tf.Operation:
    """Returns an op that does nothing: there is no device to open."""
    return tf.no_op(name=name or "initialize_system")


def shutdown_system(name: str | None = None) -> tf.Operation:
    """Returns an op that does nothing: there is no device to close."""
    return tf.no_op(name=name or "shutdown_system")


def IterationOp(name: str | None = None) -> tf.Operation:
    """Returns an op that does nothing: on the NPU it marks the end of a training step."""
    return tf.no_op(name=name or "IterationOp")


def global_dict_init() -> None:
    """Forgets what `set_value` was told."""
    _values.clear()


def set_value(key: str, value: Any) -> None:
    """Remembers a value of the job under a name; `init_resource` does so with npu_rank_id, npu_rank_size, ..."""
    _values[key] = value


def get_value(key: str, def_value: Any = None) -> Any:
    """Returns what is remembered under a name, or `def_value`."""
    return _values.get(key, def_value)


def init_resource(config: Any = None) -> tuple[tf.Session, tf.Operation]:
    """Returns (session, op): a new session of the default graph with a prepared config, and what closes the device.

    Args:
        config: tf.ConfigProto, prepared in place as `npu_config_proto` does; None takes a new one.
    """
    opened, shutdown = initialize_system(), shutdown_system()
    session = tf.Session(config=config_proto.npu_config_proto(config))
    session.run(opened)
    global_dict_init()
    for name, number in _RANKS.items():
        set_value(name, number())
    return session, shutdown


def shutdown_resource(sess: tf.Session, npu_shutdown: tf.Operation) -> None:
    """Runs the op that `init_resource` returned."""
    sess.run(npu_shutdown)


def close_session(sess: tf.Session) -> None:
    """Closes a session."""
    sess.close()


def set_keras_session_npu_config(config: Any = None) -> tf.Session:
    """Returns a new session with a prepared config, which Keras uses from now on.

    Args:
        config: tf.ConfigProto, prepared in place; None takes a new one.
    """
    session = tf.Session(config=config_proto.npu_config_proto(config))
    tf.keras.backend.set_session(session)
    return session


def npu_clear_session(config: Any = None) -> None:
    """Clears Keras's state and gives it a new session with a prepared config."""
    tf.keras.backend.clear_session()
    set_keras_session_npu_config(config)


def get_npu_rank_id() -> int:
    """Returns this process's rank, 0 for the only one."""
    return ranks.get_rank_id()


def get_npu_local_rank_id() -> int:
    """Returns this process's rank on its machine."""
    return ranks.get_local_rank_id()


def get_npu_rank_size() -> int:
    """Returns the number of processes, 1 for the only one."""
    return ranks.get_rank_size()


def get_npu_local_rank_size() -> int:
    """Returns the number of processes on this machine."""
    return ranks.get_local_rank_size()


# name of a value that init_resource remembers -> the function that knows it
_RANKS = {
    "npu_rank_id": get_npu_rank_id,
    "npu_local_rank_id": get_npu_local_rank_id,
    "npu_rank_size": get_npu_rank_size,
    "npu_local_rank_size": get_npu_local_rank_size,
}


def npu_session_config_init(session_config: Any = None) -> tf.ConfigProto:
    """Returns the same ConfigProto, prepared, or a new one: the name that releases before 2021 had."""
    return config_proto.npu_config_proto(session_config)


def decorator_tf_session(func: Callable[..., Any]) -> Callable[..., None]:
    """Returns a session class's `__init__` that first applies the bridge's settings to its config.

    The import of npu_init installs the same.
    """

    @functools.wraps(func)
    def patched(self, target="", graph=None, config=None):
        config = tf_internals.default_config() if config is None else config
        config_proto.apply_bridge_settings(config)
        func(self, target, graph, config=config)

    return patched


def tensorflow1() -> Any:
    """Returns the module with TensorFlow 1's API: `tensorflow` itself if it has that, `tensorflow.compat.v1` else."""
    import tensorflow

    # under 1.15 only the module itself has contrib; under the launcher of npu-shim it is a facade that has Session
    return tensorflow if hasattr(tensorflow, "Session") else tf


def use_tensorflow1() -> None:
    """Under TensorFlow 2 turns on TensorFlow 1's behaviour: graphs, reference variables, its control flow.

    A script that has turned eager execution off has chosen its own mixture, which stays.
    """
    if not tf.executing_eagerly():
        return
    level = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.ERROR)  # TensorFlow warns that its version 1 is old
    try:
        tf.disable_v2_behavior()
    finally:
        tf.logging.set_verbosity(level)


def variable_initializer_in_host(var_list: Sequence[Any]) -> tf.Operation:
    """Returns an op that runs the initializers of a list of variables."""
    return tf.variables_initializer(var_list, name="var_in_host")


def npu_compile(sess: tf.Session, *fetches: Any) -> None:
    """Runs the fetches once, so that what is compiled at the first run is compiled."""
    sess.run(fetches)
