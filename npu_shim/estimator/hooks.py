"""Session hooks under the vendor's names. Source: Ascend adapter of 2023-12 (r1.15) and 2026-07, npu_hook."""

from __future__ import annotations

import os
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives.hccl import broadcast
from npu_shim.distributed.job import ranks
from npu_shim.rewriter.errors import ConfigError


class NpuEmptyHook(tf.train.SessionRunHook):
    """Does nothing; converted scripts put it where a Horovod hook was."""


class NPUShutDownHook(tf.train.SessionRunHook):
    """Does nothing: there is no NPU to shut down when training ends.

    Args:
        scaffold: accepted but not used.
    """

    def __init__(self, scaffold: Any = None) -> None:
        self._scaffold = scaffold


class NPUCheckpointSaverHook(tf.train.CheckpointSaverHook):
    """tf.train.CheckpointSaverHook; with iterations_per_loop it saves on the first run at or past each N steps."""


class NPUBroadcastGlobalVariablesHook(tf.train.SessionRunHook):
    """Broadcasts the root rank's trainable variables when a session begins; does nothing with one rank.

    Args:
        root_rank: int, the rank whose values are sent; None means 0.
        index: int, this process's rank; accepted but not used.
    """

    def __init__(self, root_rank: int | None = None, index: int | None = None) -> None:
        self._root_rank = root_rank or 0
        self._index = index
        self._broadcast = None

    def begin(self) -> None:
        """Adds the broadcast to the graph."""
        self._broadcast = broadcast_global_variables(self._root_rank, self._index) if ranks.world_size() > 1 else None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the broadcast."""
        if self._broadcast is not None:
            session.run(self._broadcast)


def broadcast_global_variables(root_rank: int, index: int | None = None) -> tf.Operation:
    """Returns an op that assigns the root rank's trainable variables to those of every rank."""
    variables = tf.trainable_variables()
    return tf.group(*[tf.assign(v, new) for v, new in zip(variables, broadcast(variables, root_rank))])


class NPUOutputTensorHook(tf.train.SessionRunHook):
    """Collects tensors of every run and hands them to a function every N runs and at the end.

    Args:
        tensors: dict of tag to Tensor or tensor name, or a list of tensors, tagged by their names; None collects
            nothing.
        dependencies: op or list of ops to run before the tensors are read, or None.
        output_fn: function that gets a list with one dict (tag to value) for each run since its last call.
        output_every_n_steps: int, runs between calls; 0 calls it at the end only.

    Raises:
        ConfigError: output_fn is not callable though there are tensors, or output_every_n_steps is negative.
    """

    def __init__(
        self, tensors: Any, dependencies: Any = None, output_fn: Any = None, output_every_n_steps: int = 0
    ) -> None:
        if tensors is not None and not callable(output_fn):
            raise ConfigError("NPUOutputTensorHook: output_fn must be a function of a list, got %r" % (output_fn,))
        if output_every_n_steps < 0:
            raise ConfigError("NPUOutputTensorHook: output_every_n_steps is negative: %d" % output_every_n_steps)
        if tensors is not None and not isinstance(tensors, dict):
            tensors = {getattr(tensor, "name", tensor): tensor for tensor in tensors}
        if tensors is not None and dependencies is not None:
            before = dependencies if isinstance(dependencies, (list, tuple)) else [dependencies]
            with tf.control_dependencies(before):
                tensors = {tag: tf.identity(_tensor(tensor)) for tag, tensor in tensors.items()}
        self._tensors = tensors
        self._output_fn = output_fn
        self._every = output_every_n_steps
        self._runs = 0
        self._collected = []

    def begin(self) -> None:
        """Looks up the tensors that are given by name."""
        if self._tensors is not None:
            self._tensors = {tag: _tensor(tensor) for tag, tensor in self._tensors.items()}

    def before_run(self, run_context: Any) -> Any:
        """Fetches the tensors."""
        return None if self._tensors is None else tf.train.SessionRunArgs(self._tensors)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Collects their values, and passes them on after every N runs."""
        if self._tensors is None:
            return
        self._collected.append(run_values.results)
        self._runs += 1
        if self._every and self._runs % self._every == 0:
            self._hand_over()

    def end(self, session: Any) -> None:
        """Passes on the remaining values."""
        if self._collected:
            self._hand_over()

    def _hand_over(self):
        collected, self._collected = self._collected, []
        self._output_fn(collected)


def _tensor(tensor):
    if not isinstance(tensor, str):
        return tensor
    element = tf.get_default_graph().get_tensor_by_name(tensor)
    if element.dtype != tf.resource:
        return element
    if element.op.type != "VarHandleOp":
        raise ConfigError("'%s' is a resource, which has no value to fetch" % tensor)
    # a resource variable's name is that of its handle, but the value is meant
    return tf.raw_ops.ReadVariableOp(resource=element, dtype=element.op.get_attr("dtype"))


class TellMeStepOrLossHook(tf.train.SessionRunHook):
    """Writes the training's progress to environment variables, which accelerate_train_mode reads.

    Either by steps (STEP_NOW, TOTAL_STEP) or by loss (LOSS_NOW, TARGET_LOSS).

    Args:
        step: Tensor or tensor name of the current step; None uses the global step if `total_step` is given.
        total_step: int, the last step.
        loss: Tensor or tensor name of the loss.
        final_loss: float, the loss to reach.

    Raises:
        ConfigError: neither total_step nor loss and final_loss are given.
    """

    def __init__(
        self, step: Any = None, total_step: int | None = None, loss: Any = None, final_loss: Any = None
    ) -> None:
        if total_step is None and (loss is None or final_loss is None):
            raise ConfigError("TellMeStepOrLossHook: expected total_step=, or loss= and final_loss=")
        self._step, self._total_step = step, total_step
        self._loss, self._final_loss = loss, final_loss
        self._fetches = {}

    def begin(self) -> None:
        """Looks up the step and the loss, and writes their targets to the environment."""
        if self._total_step is not None:
            os.environ["TOTAL_STEP"] = str(self._total_step)
            self._fetches["STEP_NOW"] = tf.train.get_global_step() if self._step is None else _tensor(self._step)
        if self._loss is not None and self._final_loss is not None:
            os.environ["TARGET_LOSS"] = str(self._final_loss)
            self._fetches["LOSS_NOW"] = _tensor(self._loss)

    def before_run(self, run_context: Any) -> Any:
        """Fetches the step and the loss."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Writes them into the environment."""
        for name, value in run_values.results.items():
            os.environ[name] = str(value)


def npu_hooks_append(hooks_list: Any = ()) -> list[Any]:
    """Returns the list with an NPUBroadcastGlobalVariablesHook at its end; anything but a list becomes a new list."""
    hooks = hooks_list if isinstance(hooks_list, list) else []
    hooks.append(NPUBroadcastGlobalVariablesHook(0, ranks.world_rank()))
    return hooks
