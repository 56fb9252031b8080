"""The functions and methods of TensorFlow by which gradients are made and applied, replaced while installed.

All ways to make gradients in a graph end in one function of TensorFlow, or in `GradientTape.gradient`; all ways to
apply them in a method `apply_gradients` of tf.train.Optimizer or of Keras' OptimizerV2, or of a class derived from
them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import threading
from typing import Any, Callable, Iterator

import tensorflow.compat.v1 as tf

from npu_shim.compat.keras import real_keras
from npu_shim.compat.names import missing
from npu_shim.loss_scale.automatic import by_hand, calls, gate, keras_updates, tensorflows
from npu_shim.loss_scale.replaced import APPLY, PAIRS, REAL_KERAS, UPDATES, Replacements, is_transparent
from npu_shim.options.reports import ledger
from npu_shim.rewriter import tf_internals


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `install` was given."""

    scale: Any
    is_wanted: Callable[[], bool]


class _Here(threading.local):
    making = False
    applying = False


_lock = threading.RLock()
_here = _Here()
_settings: list[Settings] = []
_waiting: list[str] = []  # modules that are watched once they are loaded
_replacements = Replacements()


def settings() -> Settings | None:
    """Returns the settings while installed."""
    return _settings[0] if _settings else None


def install(scale: Any, is_wanted: Callable[[], bool]) -> None:
    """Installs the patches; a second call changes the settings."""
    with _lock:
        _settings[:] = [Settings(scale, is_wanted)]
        _replacements.replace(tf_internals.python_module("ops.gradients_util"), "_GradientsHelper", _gradients)
        _replacements.replace(tf.GradientTape, "gradient", _tape_gradient)
        _replacements.replace(tf.Session.__mro__[1], "_extend_graph", _extend_graph)
        _replacements.watch(tf.train.Optimizer, _apply_gradients)
        _replacements.watch_keras(_apply_gradients)
        count_tensorflows()
        if REAL_KERAS in _waiting and REAL_KERAS in sys.modules:
            _watch_real_keras(sys.modules[REAL_KERAS])
        elif REAL_KERAS not in _waiting and real_keras.version() is not None:
            _waiting.append(REAL_KERAS)
            missing.when_loaded({REAL_KERAS: _watch_real_keras})


def _watch_real_keras(module):
    if _settings:
        _replacements.watch(module.Optimizer, lambda own: keras_updates.selecting(own, _wanted), UPDATES)


def count_tensorflows() -> None:
    """Has the steps counted that TensorFlow's own loss scale skips, until `uninstall`."""
    with _lock:
        _replacements.replace(tf.train.experimental.DynamicLossScale, "update", tensorflows.counted)


def uninstall() -> None:
    """Restores what `install` has replaced."""
    with _lock:
        del _settings[:]
        _replacements.restore()


def _wanted():
    """Returns the settings if a loss scale is wanted now."""
    asked = settings()
    if asked is None or asked.is_wanted():
        return asked
    ledger.note(ledger.WITHOUT_FLOAT16)
    return None


@contextlib.contextmanager
def _now(**what: bool) -> Iterator[None]:
    before = {name: getattr(_here, name) for name in what}
    vars(_here).update(what)
    try:
        yield
    finally:
        vars(_here).update(before)


def _gradients(original):
    @functools.wraps(original)
    def gradients_helper(ys: Any, xs: Any, grad_ys: Any = None, *arguments: Any, **options: Any) -> Any:
        inner = _here.making or options.get("src_graph") is not None
        losses, inputs, starts = _listed(ys), _listed(xs), None if grad_ys is None else _listed(grad_ys)
        if inner or not _wanted() or not calls.can_scale(losses, inputs):
            return original(ys, xs, grad_ys, *arguments, **options)
        _replacements.watch_keras(_apply_gradients)
        with _now(making=True):
            compute = lambda scaled: original(losses, inputs, scaled, *arguments, **options)  # noqa: E731
            return calls.gradients(losses, starts, compute)

    return gradients_helper


def _tape_gradient(original):
    @functools.wraps(original)
    def gradient(
        self: Any, target: Any, sources: Any, output_gradients: Any = None, *arguments: Any, **options: Any
    ) -> Any:
        losses, inputs = tf.nest.flatten(target), tf.nest.flatten(sources)
        if _here.making or not _wanted() or not calls.can_scale(losses, inputs):
            return original(self, target, sources, output_gradients, *arguments, **options)
        starts = None if output_gradients is None else tf.nest.flatten(output_gradients)
        with _now(making=True):
            compute = lambda scaled: original(self, losses, inputs, scaled, *arguments, **options)  # noqa: E731
            return tf.nest.pack_sequence_as(sources, calls.gradients(losses, starts, compute))

    return gradient


def _apply_gradients(original):
    signature = inspect.signature(original)

    @functools.wraps(original)
    def apply_gradients(self: Any, *arguments: Any, **options: Any) -> Any:
        asked = None if _here.applying else _wanted()
        if (
            asked is None
            or not (arguments or PAIRS in options)
            or is_transparent(self)
        ):
            return original(self, *arguments, **options)
        pairs = tuple(arguments[0] if arguments else options.pop(PAIRS))
        call = signature.bind(self, pairs, *arguments[1:], **options)
        bound = {**call.arguments, **options}
        name = bound.get("name")
        if isinstance(call.arguments.get("name"), str):  # "a/" is absolute, and the op around this one has it
            call.arguments["name"] = name.rstrip("/")

        def apply() -> Any:
            with _now(applying=True):
                return original(*call.args, **call.kwargs)

        if original is _replacements.original(tf.train.Optimizer, APPLY):
            name = name or self.get_name()
        return gate.applied(self, pairs, asked.scale, apply, name, bound.get("global_step"))

    apply_gradients.__signature__ = signature  # type: ignore[attr-defined]
    return apply_gradients


def _extend_graph(original):
    @functools.wraps(original)
    def extend_graph(self: Any) -> None:
        registry, version = calls.registry_of(self.graph), self.graph.version
        if registry.looked_at != version and _wanted():
            registry.looked_at = version
            by_hand.tell_of(self.graph)
        original(self)

    return extend_graph


def _listed(values):
    return list(values) if isinstance(values, (list, tuple)) else [values]
