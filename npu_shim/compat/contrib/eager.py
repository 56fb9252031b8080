"""Networks of tf.contrib.eager, which Keras' models replaced. Behaviour of TensorFlow 1.15.5."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class Network(tf.keras.Model):
    """A Keras model whose layers are named by `track_layer`; those that are attributes are known without it.

    Args:
        name: str; None takes the class's name.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)
        self._tracked_layers: list[Any] = []

    def track_layer(self, layer: Any) -> Any:
        """Makes a layer's variables those of the network too, and returns it.

        Raises:
            TypeError: it is no layer.
        """
        if not isinstance(layer, tf.keras.layers.Layer):
            raise TypeError("Network.track_layer() passed type %s, not a tf.layers.Layer" % type(layer))
        self._tracked_layers.append(layer)
        return layer
