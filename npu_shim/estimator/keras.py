"""Keras under the vendor's names: averaged gradients, callbacks, models as NPUEstimators.

Source: Ascend adapter of 2023-12 (r1.15), npu_optimizer, npu_callbacks, keras_to_npu. Keras here is `tf.keras` of
TensorFlow 1's API. Where TensorFlow comes without it (2.16 and later, unless tf_keras is installed) the module still
imports, and using its names raises an error that says so.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.compat.keras import real_keras
from npu_shim.distributed.collectives import gradients
from npu_shim.distributed.collectives.hccl import broadcast
from npu_shim.distributed.job import ranks
from npu_shim.estimator.estimator import NPUEstimator
from npu_shim.options.entrances.run_config import NPURunConfig
from npu_shim.rewriter.errors import ConfigError

try:
    _OPTIMIZER = tf.keras.optimizers.Optimizer
    _CALLBACK = tf.keras.callbacks.Callback
except (ImportError, AttributeError):
    _OPTIMIZER = _CALLBACK = object


class KerasDistributeOptimizer(_OPTIMIZER):
    """Averages gradients over the ranks before the wrapped Keras optimizer applies them; with one rank it delegates.

    Hyperparameters (`lr`, ...), weights and iterations are the wrapped optimizer's, so callbacks find and set them.

    Args:
        optimizer: Keras optimizer.
        name: str.
        kwargs: further arguments of tf.keras.optimizers.Optimizer, such as clipnorm.
    """

    def __init__(self, optimizer: Any, name: str = "NpuKerasOptimizer", **kwargs: Any) -> None:
        _require_keras("KerasDistributeOptimizer")
        super().__init__(name, **kwargs)
        self.__dict__["_optimizer"] = npu_distributed_optimizer_wrapper(optimizer)

    def __getattribute__(self, name):
        inner = object.__getattribute__(self, "__dict__").get("_optimizer") if name in _DELEGATED else None
        return super().__getattribute__(name) if inner is None else getattr(inner, name)

    def __getattr__(self, name):
        if "_optimizer" not in self.__dict__:  # the base class is being set up, or a copy is being made
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name, value):
        inner = self.__dict__.get("_optimizer")
        if inner is not None and (name in _DELEGATED or name in getattr(inner, "_hyper", ()) or name == "lr"):
            setattr(inner, name, value)
        else:
            super().__setattr__(name, value)

    def get_config(self) -> dict[str, Any]:
        """Returns the wrapped optimizer's class and config with the name, for `from_config` and a saved model."""
        inner = {"class_name": type(self._optimizer).__name__, "config": self._optimizer.get_config()}
        return {"name": self._name, "optimizer": inner}

    @classmethod
    def from_config(cls, config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Returns the optimizer of a config that `get_config` made."""
        config = dict(config)
        inner = config.pop("optimizer")
        if isinstance(inner, dict):
            inner = tf.keras.optimizers.deserialize(inner, custom_objects=custom_objects)
        return cls(inner, **config)


# attributes of the base class that are taken from the wrapped optimizer nevertheless
_DELEGATED = frozenset(
    [
        "apply_gradients",
        "get_gradients",
        "get_updates",
        "get_weights",
        "iterations",
        "minimize",
        "set_weights",
        "variables",
        "weights",
        "_compute_gradients",
        "_create_all_weights",
        "_create_hypers",
        "_create_slots",
        "_distributed_apply",
        "_restore_slot_variable",
        "_create_or_restore_slot_variable",
    ]
)


if _OPTIMIZER is not object:  # load_model looks a saved model's optimizer up by its name
    tf.keras.utils.get_custom_objects()[KerasDistributeOptimizer.__name__] = KerasDistributeOptimizer


def npu_keras_optimizer(opt: Any) -> Any:
    """Returns the Keras optimizer inside a KerasDistributeOptimizer."""
    return KerasDistributeOptimizer(opt)


def npu_distributed_optimizer_wrapper(optimizer: Any) -> Any:
    """Makes an optimizer average its gradients over the ranks and returns it; with one rank it is unchanged.

    Args:
        optimizer: tf.train.Optimizer, Keras optimizer, or the name of a Keras optimizer.
    """
    if isinstance(optimizer, str):
        _require_keras("npu_distributed_optimizer_wrapper(%r)" % optimizer)
        optimizer = tf.keras.optimizers.get(optimizer)
    if ranks.world_size() > 1:
        reduce_in_place(optimizer, _averaged, "Npu_Distributed_optimizer_Allreduce")
    return optimizer


def reduce_in_place(optimizer: Any, reduced: Callable[..., list[Any]], scope: str) -> bool:
    """Makes an optimizer reduce its gradients over the ranks; returns whether it has a method that computes them.

    Args:
        optimizer: tf.train.Optimizer or Keras optimizer.
        reduced: takes gradients and their variables, and returns the reduced gradients.
        scope: of the names of what is added to the graph.
    """
    names = ("compute_gradients", "_compute_gradients", "get_gradients")
    methods = [name for name in names if hasattr(optimizer, name)]
    for name in methods:
        setattr(optimizer, name, _reducing(getattr(optimizer, name), reduced, scope))
    return bool(methods)


def _reducing(original, reduced, scope):
    def compute(*args, **kwargs):
        computed = original(*args, **kwargs)
        with tf.name_scope(scope):
            if computed and isinstance(computed[0], tuple) and not isinstance(computed[0], tf.IndexedSlices):
                given, variables = zip(*computed)
                return list(zip(reduced(given, variables), variables))
            return reduced(computed, args[1] if len(args) > 1 else kwargs["params"])

    return compute


def _averaged(given, variables):
    return gradients.reduced(list(given), [variable.name for variable in variables])


class NPUBroadcastGlobalVariablesCallback(_CALLBACK):
    """Broadcasts the root rank's variables before the first batch; does nothing with one rank.

    Args:
        root_rank: int, the rank whose values are sent.
    """

    def __init__(self, root_rank: int) -> None:
        _require_keras("NPUBroadcastGlobalVariablesCallback")
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Broadcasts once."""
        if not self.broadcast_done and ranks.get_ranksize() > 1:
            variables = self.model.weights
            sent = broadcast(variables, self.root_rank)
            real_keras.backend().get_session().run([tf.assign(v, new) for v, new in zip(variables, sent)])
        self.broadcast_done = True


def npu_callbacks_append(callbacks_list: Any = ()) -> list[Any]:
    """Returns the list with an NPUBroadcastGlobalVariablesCallback appended; anything but a list becomes a new one."""
    callbacks = callbacks_list if isinstance(callbacks_list, list) else []
    callbacks.append(NPUBroadcastGlobalVariablesCallback(0))
    return callbacks


def model_to_npu_estimator(
    keras_model: Any = None,
    keras_model_path: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    model_dir: str | None = None,
    checkpoint_format: str = "saver",
    config: Any = None,
    job_start_file: str = "",
) -> NPUEstimator:
    """Returns an NPUEstimator that trains a compiled Keras model, starting from the model's weights.

    Args:
        keras_model: compiled Keras model; either this or `keras_model_path`.
        keras_model_path: path of a model saved as HDF5.
        custom_objects: dict of the model's own classes and functions by name.
        model_dir: folder of checkpoints; None takes that of the config, or a new one.
        checkpoint_format: "saver" or "checkpoint".
        config: NPURunConfig.
        job_start_file: accepted but not read.

    Raises:
        ValueError: no NPURunConfig, no or two models, a model that is not compiled, an unknown checkpoint_format.
    """
    _require_keras("model_to_npu_estimator")
    if not isinstance(config, NPURunConfig):
        raise ConfigError("model_to_npu_estimator: config must be an NPURunConfig, got %s" % type(config))
    plain = tf.keras.estimator.model_to_estimator(
        keras_model=keras_model,
        keras_model_path=keras_model_path,
        custom_objects=custom_objects,
        model_dir=model_dir,
        config=config,
        checkpoint_format=checkpoint_format,
    )
    return NPUEstimator(
        plain._model_fn,
        config=config.replace(model_dir=plain.model_dir),
        job_start_file=job_start_file,
        warm_start_from=plain._warm_start_settings,
    )


def _require_keras(name):
    if _OPTIMIZER is object:
        raise ImportError(
            "npu_shim: %s needs tf.keras, which TensorFlow %s has only with tf_keras (pip install tf_keras)"
            % (name, tf.__version__)
        )
