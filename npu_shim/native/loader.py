"""Loads the hook into TensorFlow and connects Python functions to it, once a process."""

import ctypes
import threading

from . import build

_REWRITE = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,  # answer, for reply and fail
    ctypes.c_void_p, ctypes.c_size_t,  # graph
    ctypes.c_void_p, ctypes.c_size_t,  # optimizer config
    ctypes.c_char_p,  # item
    ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p,  # feeds, fetches, preserved
)  # fmt: skip
_CLUSTERS = ctypes.CFUNCTYPE(None, ctypes.c_int)

_lock = threading.Lock()
_connected = []  # the library and the callbacks, which must outlive every session


def connect(rewrite, clusters, minimum=0):
    """Builds (if need be), loads and connects the hook; a second call does nothing.

    Args:
        rewrite: function of (graph: bytes, config: bytes, item: str, feeds, fetches, preserved: lists of str) that
            returns the bytes of a GraphDef, or None to leave the graph as it is; or raises an error with attributes
            `code` (an int of tf.errors) and `message`. It must raise nothing else.
        clusters: function of the number of XLA clusters in a graph that a session is about to run.
        minimum: number of ops below which an XLA cluster is taken apart.

    Raises:
        build.BuildError: the hook cannot be built.
    """
    with _lock:
        if _connected:
            return
        library = build.load()
        library.npu_shim_return.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        library.npu_shim_fail.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]

        def on_rewrite(answer, graph, graph_size, config, config_size, item, *names):
            feeds, fetches, preserved = (text.decode().split("\n")[:-1] for text in names)
            try:
                rewritten = rewrite(
                    ctypes.string_at(graph, graph_size),
                    ctypes.string_at(config, config_size),
                    item.decode(), feeds, fetches, preserved,
                )  # fmt: skip
            except HookError as error:
                library.npu_shim_fail(answer, error.code, error.message.encode("utf-8", "replace"))
            else:
                if rewritten is not None:
                    library.npu_shim_return(answer, rewritten, len(rewritten))

        callbacks = _REWRITE(on_rewrite), _CLUSTERS(clusters)
        library.npu_shim_set_callbacks(*callbacks, minimum)
        _connected.extend((library, callbacks))


class HookError(Exception):
    """What a session is to fail with: a numeric code of tf.errors and a message."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message
