"""The cosine losses with the signs of TensorFlow 1.15: its tf.keras minimizes the similarity, 1 where both agree.

The package keras (2.2 and 2.3), and tf.keras since TensorFlow 2.0, minimize its negative. So what `tf.keras` names has
1.15's sign; what `keras` names, and a loss that is given by name in a script that uses `keras`, has the package's.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from npu_shim.compat.keras import real_keras

NAMES = ("cosine_similarity", "cosine_proximity", "cosine")
OWN = "cosine_proximity"  # the function's own name, which logs have, in TensorFlow 1.15 and Keras 2


def similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """The cosine of the angle between y_true and y_pred [..., n, ...] along `axis`; the shape without it."""
    import tensorflow.compat.v1 as tf

    y_pred = tf.convert_to_tensor(y_pred)
    y_true = tf.cast(y_true, y_pred.dtype)
    return tf.reduce_sum(tf.math.l2_normalize(y_true, axis) * tf.math.l2_normalize(y_pred, axis), axis)


def of_either(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """The loss of a script's own Keras: the similarity, or its negative where the script uses `keras`."""
    cosine = similarity(y_true, y_pred, axis)
    return -cosine if real_keras.face_is_used() else cosine


def by_name(losses: Any) -> None:
    """Gives the module in which losses are looked up by name those of either Keras, and its class 1.15's sign."""
    for name in NAMES:
        setattr(losses, name, _called(OWN, of_either))
    init = losses.CosineSimilarity.__init__

    @functools.wraps(init)
    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.fn = similarity

    losses.CosineSimilarity.__init__ = method


def of_tf_keras(module: Any) -> None:
    """Gives tf.keras.losses or tf.keras.metrics 1.15's functions, of those names that it has."""
    for name in NAMES:
        if hasattr(module, name):
            setattr(module, name, _called(OWN, similarity))


def metrics_by_name(metrics: Any) -> None:
    """Lets metrics be given by each of the names; logs and histories call them as 1.15 and Keras 2 do."""
    for name in NAMES:
        setattr(metrics, name, _called(OWN if name == "cosine_similarity" else name, similarity))


def _called(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function by another name, which logs and histories take from it."""

    def loss(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
        return function(y_true, y_pred, axis)

    loss.__name__ = loss.__qualname__ = name
    return loss
