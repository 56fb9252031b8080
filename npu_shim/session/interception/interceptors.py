"""Interceptors of a session's runs: every method that starts a run is wrapped by the functions that watch the session.

TensorFlow starts a run in four ways: `run`, `make_callable`, `_make_callable_from_options` (Keras' own) and the pair
`partial_run_setup` and `partial_run`. Whatever observes or changes runs (dumps, the overflow search, iterations,
shapes) is a function that `watch` adds to a session; it works whichever way a run is started. A partial run computes
pieces of what was requested beforehand, and nothing can be added to it: it is not watched, and one warning says so.

The methods of TensorFlow's BaseSession are replaced, and restored by `restore`; sessions themselves are not changed.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.session import lines
from npu_shim.session.interception import optimizer_faults
from npu_shim.session.native import loader

_WATCHES = "_npu_shim_watches"  # attribute of a known session: list of the functions that watch it, innermost first
_INNERMOST = "_npu_shim_innermost"  # attribute of a session: the function around each of TensorFlow's own runs of it
_CLOSINGS = "_npu_shim_closings"  # attribute of a session: functions to call when it is closed
_UNWATCHED = "_npu_shim_unwatched"  # attribute of a session: functions to call when a run begins that is not watched
_RESULTS = "_npu_shim_results"  # attribute of a session: function to call with the results of a run
_PARTIAL = "_npu_shim_partial"  # attribute of a session: function to call before a partial run is set up
_originals = {}  # (class, name of a method) -> its own method, while replaced
_on_adopt = []  # functions to call with a session at its first run
_to_tell: weakref.WeakSet[tf.Session] = weakref.WeakSet()  # sessions with functions for runs that nothing watches


def watch(session: tf.Session, function: Callable[..., Any]) -> None:
    """Wraps a function around every run of a session from now on, outside of the functions added before.

    Args:
        session: tf.Session; nothing here holds a reference to it.
        function: takes (session, once, fetches, feed_dict, options, run_metadata) and returns the results of the
            fetches. It calls `once(fetches, feed_dict, options, run_metadata)` as often, and with such arguments, as it
            needs. Fetches are as for Session.run. It may have an attribute `multi_step`, see there; one with a true
            attribute `looks_only` is left out of a run of several steps.
    """
    install()
    known(session).append(function)


def multi_step(once: Callable[..., Any]) -> Callable[..., Any] | None:
    """Returns how the watcher just inside runs several steps as one; None where each step is a run of its own.

    Args:
        once: what a watcher is given.

    Returns:
        A function of (count, operations, fetches, feed_dict, options, run_metadata): it runs the operations `count` - 1
        times, then the fetches, which include them, and returns the fetches' results.
    """
    watcher = getattr(once, "func", None)
    while getattr(watcher, "looks_only", False):
        once = once.args[1]
        watcher = getattr(once, "func", None)
    if not hasattr(watcher, "multi_step"):
        return None
    return functools.partial(watcher.multi_step, *once.args)


def innermost(session: tf.Session, function: Callable[..., Any]) -> None:
    """Wraps a function around every run that TensorFlow makes of a session: those of `plain_run` and of engines too.

    Args:
        session: tf.Session; nothing here holds a reference to it.
        function: as for `watch`.
    """
    install()
    vars(session)[_INNERMOST] = function


def at_close(session: tf.Session, function: Callable[[], Any]) -> None:
    """Calls a function without arguments once when a session is closed."""
    install()
    vars(session).setdefault(_CLOSINGS, []).append(function)


def at_unwatched(session: tf.Session, function: Callable[[str, Any], Any]) -> None:
    """Calls a function whenever a session begins a run that nothing can watch, and before `restore`.

    Args:
        session: tf.Session; nothing here holds a reference to it.
        function: takes what nothing watches, in words: a partial run, a run of connected tensors, or all of them; and
            what it fetches that no watched run does, None where none is watched any more.
    """
    install()
    vars(session).setdefault(_UNWATCHED, []).append(function)
    _to_tell.add(session)


def at_results(session: tf.Session, function: Callable[[tf.Session, Any, Any], None] | None) -> None:
    """Calls a function of (session, fetches, results) behind every run of a session, outside of what watches it.

    Where TensorFlow ends a run with an error, the function gets the error for results.

    Args:
        session: tf.Session; nothing here holds a reference to it.
        function: replaces the one before; None calls none.
    """
    install()
    vars(session)[_RESULTS] = function


def before_partial(session: tf.Session, function: Callable[[tf.Session, Any, Any], None]) -> None:
    """Calls a function of (session, fetches, feeds) before a partial run is set up; its error refuses the run."""
    install()
    vars(session)[_PARTIAL] = function


def plain_run(session: tf.Session, fetches: Any, feed_dict: Any = None, options: Any = None) -> Any:
    """Runs a session as TensorFlow does, inside of all that watches it."""
    run = _originals.get((base_session(), "run")) or base_session().run
    return _with_innermost(session, _whole(run, session))(fetches, feed_dict, options, None)


def replace(cls: type, method: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces a method of a class by `make(method)` until `restore`; a second call does nothing."""
    if (cls, method) not in _originals:
        original = _originals[cls, method] = getattr(cls, method)
        setattr(cls, method, functools.wraps(original)(make(original)))


def is_replaced(cls: type, method: str) -> bool:
    """Whether a method of a class is replaced now."""
    return (cls, method) in _originals


def restore_method(cls: type, method: str) -> None:
    """Restores one method of a class; does nothing where it is not replaced."""
    if (cls, method) in _originals:
        setattr(cls, method, _originals.pop((cls, method)))


def restore() -> None:
    """Restores every class's own methods; so nothing watches a session any more."""
    for session in list(_to_tell) if _originals else ():
        _tell_unwatched(session, "npu_shim.unpatch()", None)
    for cls, method in list(_originals):
        restore_method(cls, method)
    del _on_adopt[:]


def base_session() -> type:
    """Returns the base class of both of TensorFlow's session classes."""
    return tf.Session.__mro__[1]


def install(on_adopt: Callable[[tf.Session], Any] | None = None) -> None:
    """Installs the interceptors; a second call does nothing.

    Args:
        on_adopt: function of a session; it is called at the first run of each session that was made before the patch.
    """
    if on_adopt is not None:
        _on_adopt.append(on_adopt)
    for method, make in _INTERCEPTED.items():
        replace(base_session(), method, make)


def known(session: tf.Session) -> list[Callable[..., Any]]:
    """Returns the list of the functions that watch a session, and registers the session."""
    return vars(session).setdefault(_WATCHES, [])


def _watches(session):
    if _WATCHES not in vars(session):
        known(session)
        for call in _on_adopt:
            call(session)
    return vars(session)[_WATCHES]


def _with_innermost(session, once):
    """Wraps a session's innermost function around one of its runs."""
    function = vars(session).get(_INNERMOST)
    return once if function is None else functools.partial(function, session, once)


def _is_plain(session):
    """Whether nothing is around a session's runs."""
    return not _watches(session) and _INNERMOST not in vars(session)


def _run_watched(session, once, *arguments):
    """Calls `once(fetches, feed_dict, options, run_metadata)` inside the functions that watch the session."""
    once = _with_innermost(session, once)
    for function in _watches(session):
        once = functools.partial(function, session, once)
    return once(*arguments)


def _shown(session, fetches, run):
    """Returns the results of a run, behind the function that looks at them or at the error that ends it."""
    look = vars(session).get(_RESULTS)
    if look is None:
        return run()
    try:
        results = run()
    except tf.errors.OpError as error:
        look(session, fetches, error)
        raise
    look(session, fetches, results)
    return results


def _whole(call, *first):
    """A call of TensorFlow's, which may have it optimize a graph: with an optimizer less where one breaks it."""
    return lambda *rest, **keywords: optimizer_faults.until_whole(lambda: call(*first, *rest, **keywords))


def _run(original):
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        with loader.interrupts():
            once = _whole(original, self)
            watched = functools.partial(_run_watched, self, once, fetches, feed_dict, options, run_metadata)
            return _shown(self, fetches, watched)

    return run


def _make_callable(original):
    def make_callable(self, fetches, feed_list=None, accept_options=False):
        plain = original(self, fetches, feed_list, accept_options)

        def call(*feeds, **options):
            if not _is_plain(self):  # as TensorFlow's own do where there is a feed_list
                return self.run(fetches, dict(zip(feed_list or (), feeds)), **options)
            if feed_list is not None:  # TensorFlow's own calls `run`
                return plain(*feeds, **options)
            with loader.interrupts():
                return _shown(self, fetches, functools.partial(_whole(plain), *feeds, **options))

        return call

    return make_callable


def _make_callable_from_options(original):
    def make_callable_from_options(self, callable_options):
        run = _Callables(self, original, callable_options)
        if _is_plain(self):
            run.native(callable_options.fetch, callable_options.target)
        return run

    return make_callable_from_options


class _Callables:
    """The result of `_make_callable_from_options`: a callable that can fetch more than its options say.

    Feeds and connections between tensors are those of the options. TensorFlow's own callable is made once for each set
    of fetches.
    """

    def __init__(self, session, original, options):
        self._session, self._original, self._options = session, original, options
        self._callables = {}  # (names of tensors, operations, further feeds, RunOptions) -> TensorFlow's own callable

    def native(self, fetches, targets, run_options=None, more=()):
        """Returns TensorFlow's own callable for these names of tensors and operations, and with these RunOptions.

        `more` are names of tensors that are fed behind those of the options.
        """
        run_with = run_options and run_options.SerializeToString(deterministic=True)
        key = tuple(fetches), tuple(targets), tuple(more), run_with
        if key not in self._callables:
            options = type(self._options)()
            options.CopyFrom(self._options)
            if run_options is not None:
                options.run_options.CopyFrom(run_options)
            del options.fetch[:], options.target[:]
            options.fetch.extend(fetches)
            options.target.extend(targets)
            options.feed.extend(more)
            with loader.interrupts():
                self._callables[key] = _whole(self._original, self._session)(options)
        return self._callables[key]

    def __call__(self, *feeds, **keywords):
        fetches, targets = self._options.fetch, self._options.target
        if self._options.tensor_connection:
            _tell_unwatched(self._session, "a run of connected tensors")
        if _is_plain(self._session):
            native = self.native(fetches, targets)
            return _shown(self._session, list(fetches), functools.partial(native, *feeds, **keywords))
        operations = [self._session.graph.get_operation_by_name(name) for name in targets]
        fed = dict(zip(self._options.feed, feeds))
        both = [list(fetches), operations]
        metadata = keywords.get("run_metadata")
        arguments = (both, fed, self._options.run_options, metadata)
        watched = functools.partial(_run_watched, self._session, self._once, *arguments)
        return _shown(self._session, both, watched)[0]

    def _once(self, fetches, feed_dict, options=None, run_metadata=None):
        handler = tf_internals.fetch_handler(self._session.graph, fetches)
        # a fed tensor cannot be fetched as well: its value is known, or is another tensor's
        connected = {connection.to_tensor: connection.from_tensor for connection in self._options.tensor_connection}
        names = [connected.get(tensor.name, tensor.name) for tensor in handler.fetches()]
        asked = [name for name in dict.fromkeys(names) if name not in feed_dict]
        more = sorted(set(feed_dict).difference(self._options.feed))  # as of a step whose beginning has run
        run = self.native(asked, [operation.name for operation in handler.targets()], options, more)
        fetched = run(*(feed_dict[name] for name in [*self._options.feed, *more]), run_metadata=run_metadata)
        known = {**feed_dict, **dict(zip(asked, fetched))}
        return handler.build_results(self._session, [known[name] for name in names])


def _partial_run_setup(original):
    def partial_run_setup(self, fetches, feeds=None):
        if _PARTIAL in vars(self):
            vars(self)[_PARTIAL](self, fetches, feeds)
        if _watches(self):
            lines.once("a partial run is not watched: nothing of it is dumped, searched or repeated")
        _tell_unwatched(self, "a partial run", fetches)
        with loader.interrupts():
            return _whole(original, self)(fetches, feeds)

    return partial_run_setup


def _partial_run(original):
    def partial_run(self, handle, fetches, feed_dict=None):
        _tell_unwatched(self, "a partial run")
        with loader.interrupts():
            return original(self, handle, fetches, feed_dict)

    return partial_run


def _tell_unwatched(session, what, fetches=()):
    for function in vars(session).get(_UNWATCHED, ()):
        function(what, fetches)


def _close(original):
    def close(self):
        for function in vars(self).pop(_CLOSINGS, ()):
            function()
        original(self)

    return close


_INTERCEPTED = {
    "run": _run,
    "make_callable": _make_callable,
    "_make_callable_from_options": _make_callable_from_options,
    "partial_run_setup": _partial_run_setup,
    "partial_run": _partial_run,
    "close": _close,
}
