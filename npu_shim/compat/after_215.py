"""Restores what TensorFlow dropped after 2.15: Keras 2 (package tf_keras), Estimator (package tensorflow-estimator).

tensorflow-estimator 2.15.0 is the last release, made for TensorFlow 2.15. Of its imports from TensorFlow, 2.21 lacks a
name and four modules. One of them is reimplemented below, as far as a single process needs it; the others run TPUs,
which only TPUEstimator with `use_tpu=True` uses.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import types
from typing import Any

from npu_shim.rewriter import tf_internals

LOG = logging.getLogger("npu_shim")
ESTIMATOR = "tensorflow_estimator.python.estimator.api._v1.estimator"
COORDINATOR = "tensorflow.python.distribute.estimator_training"
TPU = ("session_support", "tpu_embedding", "tpu_embedding_gradient")
# name of the v1 API -> package that `restore` found for it
MOVED = {}


def restore(tf: Any) -> None:
    """Gives `tf` (tensorflow.compat.v1) `tf.keras`, `tf.layers` and `tf.estimator` again, as far as they are installed.

    On TensorFlow 2.15 and earlier, and when called again, there is nothing to do. Whether tf.keras is Keras 2 stays the
    user's choice: TF_USE_LEGACY_KERAS, if it is set.
    """
    if hasattr(tf, "estimator"):
        return
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # read when tf.keras or tf.layers is first used
    keras_2 = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")
    MOVED["tensorflow.keras"] = "tf_keras.api._v1.keras" if keras_2 else "keras._tf_keras.keras"
    if importlib.util.find_spec("tensorflow_estimator") is not None:
        estimator = _import_estimator()
        if estimator is not None:
            tf.estimator = estimator


def without_estimator(name: str, tf: Any) -> ImportError:
    """Returns the ImportError, with its remedy, for a name that needs Estimator if there is none."""
    return ImportError(
        "npu_shim: %s: TensorFlow %s comes without Estimator; install it with: pip install tensorflow-estimator==2.15.0"
        " tf_keras, or use TensorFlow 2.15, or sess.run" % (name, tf.__version__)
    )


def _import_estimator():
    tf_internals.allow_estimator_exports()
    if ESTIMATOR in sys.modules:  # another face of the v1 API has it already
        return sys.modules[ESTIMATOR]
    stand_ins = [_Coordinator(COORDINATOR), *(_Tpu("tensorflow.python.tpu." + name) for name in TPU)]
    for module in stand_ins:
        if importlib.util.find_spec(module.__name__) is None:
            sys.modules[module.__name__] = module
    try:
        return importlib.import_module(ESTIMATOR)
    except Exception as reason:  # whatever it misses in a TensorFlow to come, all but Estimator is to work
        LOG.warning("npu_shim: the installed tensorflow-estimator does not work with this TensorFlow: %s", reason)
        return None


class _Coordinator(types.ModuleType):
    """The part of TensorFlow's distribute coordinator that Estimator uses, for releases without it."""

    @staticmethod
    def init_run_config(config, tf_config):
        """Sets what RunConfig knows of its cluster: TF_CONFIG's, without a strategy that would need the coordinator.

        Raises:
            ValueError: a strategy is given twice, or together with a cluster.
        """
        wanted = config._experimental_distribute
        for part in ("train_distribute", "eval_distribute"):
            strategy = getattr(wanted, part, None)
            if strategy is None:
                continue
            if getattr(config, "_" + part) is not None:
                raise ValueError("npu_shim: RunConfig: %s is given twice, once in experimental_distribute" % part)
            setattr(config, "_" + part, strategy)
        cluster = getattr(wanted, "remote_cluster", None) or tf_config.get("cluster")
        if config._train_distribute is not None and cluster and "master" not in tf_config.get("cluster", ()):
            raise ValueError(
                "npu_shim: RunConfig: a cluster with a distribution strategy needs the distribute coordinator, which "
                "TensorFlow 2.15 was the last to have"
            )
        config._distribute_coordinator_mode = None
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()

    @staticmethod
    def should_run_distribute_coordinator(config):
        """Whether to train through the coordinator: never."""
        return False


class _Tpu(types.ModuleType):
    """A module for TPUs that is gone: its names import as classes that nothing is an instance of."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        created = type(name, (), {"__init__": _no_tpu, "__module__": self.__name__})
        setattr(self, name, created)
        return created


def _no_tpu(self, *args, **kwargs):
    raise NotImplementedError(
        "npu_shim: %s.%s was last in TensorFlow 2.15; use TPUEstimator with use_tpu=False"
        % (type(self).__module__, type(self).__name__)
    )
