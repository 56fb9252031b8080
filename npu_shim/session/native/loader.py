"""Loads the hook into TensorFlow and connects Python functions to it, once a process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from typing import Any, Callable, Iterator

from npu_shim.session.native import build

CANCELLED, INTERNAL = 1, 13  # codes of tf.errors

_REWRITE = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,  # answer, for reply and fail
    ctypes.c_void_p, ctypes.c_size_t,  # graph
    ctypes.c_void_p, ctypes.c_size_t,  # optimizer config
    ctypes.c_char_p,  # item
    ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p,  # feeds, fetches, preserved
)  # fmt: skip
_MISSED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CLUSTERS = ctypes.CFUNCTYPE(None, ctypes.c_int)

_lock = threading.Lock()
_connected: list[Any] = []  # the library and the callbacks, which must outlive every session
_stopped = threading.local()  # .by: the interrupt that ended a callback of this thread and must end its caller


def connect(
    rewrite: Callable[..., bytes | None],
    missed: Callable[[bytes, Callable[[str, int], None]], None],
    clusters: Callable[[int], None],
    minimum: int = 0,
) -> None:
    """Builds the hook if necessary, loads and connects it; a second call does nothing.

    Any other exception of a callback, including KeyboardInterrupt and SystemExit, becomes the session's error as well:
    a graph without an answer does not run.

    Args:
        rewrite: function of (graph: bytes, config: bytes, item: str, feeds, fetches, preserved: lists of str) that
            returns the bytes of a GraphDef, or None to leave the graph as it is; or raises HookError.
        missed: function of a session's ConfigProto (bytes) that names NpuOptimizer, and of a function that sets a field
            of this session's RewriterConfig (its name and number) for its later graphs. It is called for a graph that
            never reached `rewrite`, or was dropped behind it; raises HookError, or returns to let it run unchanged.
        clusters: function of the number of XLA clusters in a graph that a session is about to run.
        minimum: XLA clusters with fewer ops are dissolved.

    Raises:
        build.BuildError: the hook cannot be built.
    """
    with _lock:
        if _connected:
            return
        library = build.load()
        library.npu_shim_return.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        library.npu_shim_unchanged.argtypes = [ctypes.c_void_p]
        library.npu_shim_switch.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        library.npu_shim_fail.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]

        def on_rewrite(
            answer: Any, graph: Any, graph_size: int, config: Any, config_size: int, item: bytes, *names: bytes
        ) -> None:
            with _errors_as_answer(library, answer):
                feeds, fetches, preserved = (text.decode().split("\n")[:-1] for text in names)
                rewritten = rewrite(
                    ctypes.string_at(graph, graph_size),
                    ctypes.string_at(config, config_size),
                    item.decode(), feeds, fetches, preserved,
                )  # fmt: skip
                if rewritten is None:
                    library.npu_shim_unchanged(answer)
                else:
                    library.npu_shim_return(answer, rewritten, len(rewritten))

        def on_missed(answer: Any, config: Any, config_size: int) -> None:
            with _errors_as_answer(library, answer):
                switch = lambda field, value: library.npu_shim_switch(answer, field.encode(), value)  # noqa: E731
                missed(ctypes.string_at(config, config_size), switch)
                library.npu_shim_unchanged(answer)

        callbacks = _REWRITE(on_rewrite), _MISSED(on_missed), _CLUSTERS(functools.partial(_report_clusters, clusters))
        library.npu_shim_set_callbacks(*callbacks, minimum)
        _connected.extend((library, callbacks))


def arrivals() -> dict[int, tuple[int, float]]:
    """Returns what has come to the collectives: instance key -> (how often, seconds since the last time)."""
    if not _connected:
        return {}
    tell, size = _connected[0].npu_shim_arrivals, 1 << 12
    tell.restype, tell.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]
    while True:
        text = ctypes.create_string_buffer(size)
        needed = tell(text, size)
        if needed <= size:
            break
        size = 2 * needed
    rows = (line.split() for line in text.raw[:needed].decode().splitlines())
    return {int(key): (int(count), float(ago)) for key, count, ago in rows}


class HookError(Exception):
    """The error that a session fails with: a numeric code of tf.errors and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@contextlib.contextmanager
def _errors_as_answer(library: Any, answer: Any) -> Iterator[None]:
    """Scope of a callback: any exception in it becomes the session's error."""
    try:
        yield
    except HookError as error:
        library.npu_shim_fail(answer, error.code, error.message.encode("utf-8", "replace"))
    except BaseException as error:
        code = INTERNAL if isinstance(error, Exception) else CANCELLED
        text = "npu_shim: the graph was not rewritten: %s: %s" % (type(error).__name__, error)
        library.npu_shim_fail(answer, code, text.encode("utf-8", "replace"))
        _keep_interrupt(error)


def _report_clusters(clusters: Callable[[int], None], count: int) -> None:
    try:
        clusters(count)
    except BaseException as error:
        _keep_interrupt(error)


def _keep_interrupt(error: BaseException) -> None:
    # an Exception has become the session's error; an interrupt or an exit is the program's
    if not isinstance(error, Exception):
        _stopped.by = error


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Scope of a session's run: raises an interrupt that arrived during a callback, in place of the session's error."""
    _stopped.by = None
    try:
        yield
    finally:
        stopped, _stopped.by = _stopped.by, None
        if stopped is not None:
            raise stopped
