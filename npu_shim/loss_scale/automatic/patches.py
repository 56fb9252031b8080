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

from npu_shim.loss_scale.automatic import by_hand, calls, gate
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.walks import reached

# Keras 2 as TensorFlow 1.15 has it, as a package of its own, and as TensorFlow 2 keeps it beside that
KERAS = (
    "tensorflow.python.keras.optimizer_v2.optimizer_v2",
    "tensorflow_core.python.keras.optimizer_v2.optimizer_v2",
    "keras.src.optimizers.legacy.optimizer_v2",
    "tf_keras.src.optimizers.legacy.optimizer_v2",
)
# their inner optimizer applies elsewhere: in a queue's runner, which cannot reach into a branch
TRANSPARENT = ("SyncReplicasOptimizer",)
APPLY = "apply_gradients"
PAIRS = "grads_and_vars"  # its first argument, where a script passes it by name
WATCH = "__init_subclass__"


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
_replaced: dict[tuple[Any, str], tuple[Any, Any]] = {}  # (owner, name) -> (what it had there itself or None, ours)


def settings() -> Settings | None:
    """Returns the settings while installed."""
    return _settings[0] if _settings else None


def install(scale: Any, is_wanted: Callable[[], bool]) -> None:
    """Installs the patches; a second call changes the settings."""
    with _lock:
        _settings[:] = [Settings(scale, is_wanted)]
        _replace(tf_internals.python_module("ops.gradients_util"), "_GradientsHelper", _gradients)
        _replace(tf.GradientTape, "gradient", _tape_gradient)
        _replace(tf.Session.__mro__[1], "_extend_graph", _extend_graph)
        _watch(tf.train.Optimizer)
        _watch_keras()


def uninstall() -> None:
    """Restores what `install` has replaced."""
    with _lock:
        del _settings[:]
        while _replaced:
            (owner, name), (original, ours) = _replaced.popitem()
            if vars(owner).get(name) is not ours:
                continue  # someone else has replaced ours, which passes everything on from now on
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _replace(owner, name, make):
    if (owner, name) not in _replaced:
        original = vars(owner).get(name)
        ours = make(original if original is not None else getattr(owner, name))
        _replaced[owner, name] = (original, ours)
        setattr(owner, name, ours)


def _watch(root):
    """Replaces the method of a class and of all that are derived from it, now or later."""
    if (root, WATCH) in _replaced:
        return

    def subclassed(cls: type, **arguments: Any) -> None:
        before(cls, **arguments)
        with _lock:
            if _settings:
                _replace_apply(cls)

    own = vars(root).get(WATCH)
    before = own.__func__ if own is not None else lambda cls, **kw: super(root, cls).__init_subclass__(**kw)
    _replace(root, WATCH, lambda _: classmethod(subclassed))
    for cls in reached([root], type.__subclasses__):
        _replace_apply(cls)


def _watch_keras():
    for name in KERAS:
        module = sys.modules.get(name)
        if module is not None:
            _watch(module.OptimizerV2)


def _replace_apply(cls):
    if inspect.isfunction(vars(cls).get(APPLY)):
        _replace(cls, APPLY, _apply_gradients)


def _wanted():
    """Returns the settings if a loss scale is wanted now."""
    asked = settings()
    return asked if asked is not None and asked.is_wanted() else None


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
        with _lock:
            _watch_keras()
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
            or any(cls.__name__ in TRANSPARENT for cls in type(self).__mro__)
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

        if original is _replaced.get((tf.train.Optimizer, APPLY), (None,))[0]:
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
