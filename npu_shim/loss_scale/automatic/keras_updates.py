"""Updates of the package keras of TensorFlow 1's time, whose optimizers assign to each variable by themselves.

    get_updates(loss, params):  gradients of the loss, then K.update, K.update_add or K.update_sub of each variable

In a step whose gradients are not finite every such variable keeps its value: what it is assigned is selected. Slots
are made in the same method, so it cannot stand in a branch.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import Any, Callable, Iterator

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic import gate
from npu_shim.loss_scale.automatic.calls import SCOPE
from npu_shim.loss_scale.managers.graph_ops import outer_graph
from npu_shim.options.ops.scopes import keep_dtype_scope as keep_dtype

BACKEND = "keras.backend"
GRADIENTS = "get_gradients"  # method of the optimizers that computes, and clips, the gradients
WHOLE = "update"  # function of the backend that assigns a value; the other two add or subtract one
ASSIGNMENTS = (WHOLE, "update_add", "update_sub")


class _Here(threading.local):
    updating = False


_here = _Here()


def selecting(get_updates: Callable[..., Any], wanted: Callable[[], Any]) -> Callable[..., Any]:
    """Returns the method with a loss scale.

    Args:
        get_updates: the method of an optimizer of Keras.
        wanted: returns the settings while a loss scale is wanted, else None.
    """

    @functools.wraps(get_updates)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = wanted()
        if asked is None or outer_graph() is None or _here.updating:  # the last: a base class's, called by its heir
            return get_updates(self, *args, **kwargs)
        update = _Update(self, asked.scale)
        with update.taking():
            updates = get_updates(self, *args, **kwargs)
        return [*updates, *update.moves]

    return method


class _Update:
    """One call of `get_updates`.

    Attributes:
        finite: bool tensor, whether the step's gradients are finite; None where they have no scale, or before they are
            made.
        moves: list of the ops that move the scale.
    """

    def __init__(self, optimizer: Any, scale: Any) -> None:
        self.finite: Any = None
        self.moves: list[Any] = []
        self._optimizer, self._scale = optimizer, scale
        self._compute: Callable[..., Any] = getattr(optimizer, GRADIENTS)

    @contextlib.contextmanager
    def taking(self) -> Iterator[None]:
        """Scope in which the optimizer's gradients are looked at, and its assignments select."""
        backend: Any = sys.modules[BACKEND]
        own = vars(self._optimizer)
        given = GRADIENTS in own  # Horovod's face has put its own there
        originals = {name: getattr(backend, name) for name in ASSIGNMENTS}
        own[GRADIENTS], _here.updating = self._gradients, True
        vars(backend).update({name: self._assigning(name, original) for name, original in originals.items()})
        try:
            yield
        finally:
            vars(backend).update(originals)
            _here.updating = False
            del own[GRADIENTS]
            if given:
                own[GRADIENTS] = self._compute

    def _gradients(self, loss: Any, params: Any) -> Any:
        computed = self._compute(loss, params)
        looked_at = gate.tested(self._optimizer, list(zip(computed, params)), self._scale)
        if looked_at is not None:
            self.finite, self.moves = looked_at
        return computed

    def _assigning(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def assign(x: Any, value: Any) -> Any:
            if self.finite is None:
                return original(x, value)
            with keep_dtype(), tf.name_scope(SCOPE):
                value = tf.convert_to_tensor(value, x.dtype.base_dtype)
                kept = tf.identity(x) if name == WHOLE else tf.zeros_like(value)
                value = tf.where_v2(self.finite, value, kept)
            return original(x, value)

        return assign
