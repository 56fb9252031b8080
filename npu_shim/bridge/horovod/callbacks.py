"""Horovod's Keras callbacks. Source: as horovod.tensorflow; the warm-up is Goyal et al., 2017 (arXiv 1706.02677)."""

from __future__ import annotations

import sys
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.bridge.horovod import tensorflow as hvd
from npu_shim.distributed.job import ranks
from npu_shim.rewriter.errors import ConfigError

try:
    _CALLBACK = tf.keras.callbacks.Callback
except (ImportError, AttributeError):  # TensorFlow 2.16 and later without tf_keras
    _CALLBACK = object


def _backend(model: Any) -> Any:
    """The backend of the Keras that a model is of, whose session holds it: there are several."""
    base = next(cls for cls in reversed(type(model).__mro__) if cls.__name__ == "Model")
    module = sys.modules[base.__module__]
    return module.K if hasattr(module, "K") else module.backend  # the first is what Keras 2.3 and older call it


class BroadcastGlobalVariablesCallback(_CALLBACK):
    """Broadcasts the root rank's variables after the first batch, when all of them exist.

    Args:
        root_rank: int.
        device: accepted.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank, self.broadcast_done = root_rank, False

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts once."""
        if not self.broadcast_done:
            _backend(self.model).get_session().run(hvd.broadcast_global_variables(self.root_rank))
        self.broadcast_done = True


class MetricAverageCallback(_CALLBACK):
    """Replaces an epoch's metrics by their means over the ranks; stand in front of callbacks that read them."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self._means: dict[str, Any] = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages the metrics in `logs`, in place."""
        if not logs or ranks.world_size() == 1:
            return
        session = _backend(self.model).get_session()
        with session.graph.as_default():
            for name in sorted(logs):
                if name not in self._means:
                    value = tf.placeholder(tf.float32, [])
                    self._means[name] = value, hvd.allreduce(value)
        names = sorted(logs)
        fed = {self._means[name][0]: logs[name] for name in names}
        logs.update(zip(names, map(float, session.run([self._means[name][1] for name in names], fed))))


class LearningRateScheduleCallback(_CALLBACK):
    """Multiplies the first learning rate by a factor, from one epoch to another.

    Args:
        initial_lr: float, or a function `multiplier` where it is given first, as Horovod before 0.21 has it; then the
            optimizer's own rate at the begin is multiplied.
        multiplier: float, or function of the epoch (with its fraction, where it is smooth).
        start_epoch, end_epoch: int; the epochs for which it holds, `end_epoch` left out.
        staircase: whether the factor changes at epochs only, and not at each batch.
        momentum_correction: whether momentum changes with the rate within the batch, as Goyal et al. advise.
        steps_per_epoch: int; None is found out from Keras.
    """

    def __init__(
        self, initial_lr: Any = None, multiplier: Any = None, start_epoch: int = 0, end_epoch: int | None = None,
        staircase: bool = True, momentum_correction: bool = True, steps_per_epoch: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if multiplier is None:
            initial_lr, multiplier = None, initial_lr
        if multiplier is None:
            raise ConfigError("hvd.callbacks.LearningRateScheduleCallback needs a multiplier")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.multiplier: Callable[[float], float] = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.current_epoch = 0
        self._momentum: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Notes the first learning rate."""
        if self.initial_lr is None:
            self.initial_lr = self._get("lr")
        if self.steps_per_epoch is None and not self.staircase:
            self.steps_per_epoch = self.params.get("steps") or -(-self.params["samples"] // self.params["batch_size"])

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes the epoch."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate where it changes now."""
        end = float("inf") if self.end_epoch is None else self.end_epoch
        if not self.start_epoch <= self.current_epoch < end or (self.staircase and batch):
            return
        epoch = self.current_epoch if self.staircase else self.current_epoch + batch / self.steps_per_epoch
        before, rate = self._get("lr"), self.initial_lr * self.multiplier(epoch)
        self._set("lr", rate)
        if self.momentum_correction and hasattr(self.model.optimizer, "momentum") and before:
            self._momentum = self._get("momentum")
            self._set("momentum", self._momentum * rate / before)

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Gives momentum back its own value."""
        if self._momentum is not None:
            self._set("momentum", self._momentum)
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Puts the rate into the epoch's logs."""
        if logs is not None:
            logs["lr"] = self._get("lr")

    def _get(self, name):
        return float(_backend(self.model).get_value(getattr(self.model.optimizer, name)))

    def _set(self, name, value):
        _backend(self.model).set_value(getattr(self.model.optimizer, name), value)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from 1 / size of it to all of it, over the first epochs.

    Args:
        initial_lr: float, the rate that is reached; None is the optimizer's. A whole number that stands alone is
            `warmup_epochs`, which came first before Horovod 0.21.
        warmup_epochs: int, 5 where none is given.
        momentum_correction, steps_per_epoch: as of LearningRateScheduleCallback.
        verbose: int; 1 prints the rate when it is reached.
    """

    def __init__(
        self, initial_lr: Any = None, warmup_epochs: int | None = None, momentum_correction: bool = True,
        steps_per_epoch: int | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        if isinstance(initial_lr, int) and warmup_epochs is None:
            initial_lr, warmup_epochs = None, initial_lr
        epochs = 5 if warmup_epochs is None else warmup_epochs

        def multiplier(epoch: float) -> float:
            epoch += 1.0 / self.steps_per_epoch  # so that the last batch of the warm-up has all of it
            return 1.0 / hvd.size() * (epoch * (hvd.size() - 1) / epochs + 1)

        super().__init__(initial_lr, multiplier, 0, epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Puts the rate into the epoch's logs, and prints it when it is reached."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end_epoch is not None and epoch == self.end_epoch - 1:
            print("\nEpoch %d: finished gradual learning rate warmup to %g." % (epoch + 1, self._get("lr")))
