"""Optimizers of tf.contrib.opt around others: weight decay, averages, clipping (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import types
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.opt.shampoo import ShampooOptimizer
from npu_shim.compat.contrib.opt.swapped import MASTER, Swapped


class DecoupledWeightDecayExtension:
    """Mix-in in front of an optimizer: var -= weight_decay * var before its own update (Loshchilov and Hutter 2019).

    Args:
        weight_decay: float, tensor, or a function that returns one.
        **kwargs: of the optimizer.
    """

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
        self._decay_var_list = None
        self._weight_decay = weight_decay
        super().__init__(*args, **kwargs)

    def minimize(self, loss: Any, *args: Any, decay_var_list: Any = None, **kwargs: Any) -> Any:
        """As the optimizer's; if `decay_var_list` is given, only its variables decay."""
        self._decay_var_list = decay_var_list
        return super().minimize(loss, *args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None, decay_var_list: Any = None
    ) -> Any:
        """As the optimizer's; `decay_var_list` may have been given to `minimize` already."""
        self._decay_var_list = decay_var_list or self._decay_var_list
        grads_and_vars = list(grads_and_vars)
        # no variable may decay while a gradient is still being computed with it
        with tf.control_dependencies([g for g, _ in grads_and_vars if g is not None]):
            return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def _decayed(self, var, rows=None):
        """The op that lets a variable, or some of its rows, decay."""
        if self._decay_var_list and not any(var is other for other in self._decay_var_list):
            return tf.no_op()
        decay = self._weight_decay() if callable(self._weight_decay) else self._weight_decay
        decay = tf.cast(decay, var.dtype.base_dtype)
        if rows is None:
            return tf.assign_sub(var, decay * var).op
        return tf.scatter_sub(var, rows, decay * tf.gather(var, rows))

    def _apply_dense(self, grad, var):
        with tf.control_dependencies([self._decayed(var)]):
            return super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad, var):
        with tf.control_dependencies([self._decayed(var)]):
            return super()._resource_apply_dense(grad, var)

    def _apply_sparse(self, grad, var):
        with tf.control_dependencies([self._decayed(var, grad.indices)]):
            return super()._apply_sparse(grad, var)

    def _resource_apply_sparse(self, grad, var, indices):
        with tf.control_dependencies([self._decayed(var, indices)]):
            return super()._resource_apply_sparse(grad, var, indices)


def extend_with_decoupled_weight_decay(base_optimizer: Any) -> type:
    """Returns a class: `base_optimizer` with `weight_decay` as its first argument."""

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):
        pass

    return OptimizerWithDecoupledWeightDecay


class MomentumWOptimizer(DecoupledWeightDecayExtension, tf.train.MomentumOptimizer):
    """MomentumOptimizer with decoupled weight decay."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(weight_decay, learning_rate, momentum, use_locking, name, use_nesterov)


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.train.AdamOptimizer):
    """AdamOptimizer with decoupled weight decay."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(weight_decay, learning_rate, beta1, beta2, epsilon, use_locking, name)


class ShampooWOptimizer(DecoupledWeightDecayExtension, ShampooOptimizer):
    """ShampooOptimizer with decoupled weight decay."""

    def __init__(self, weight_decay: Any, global_step: Any, *args: Any, name: str = "ShampooW", **kwargs: Any) -> None:
        super().__init__(weight_decay, global_step, *args, name=name, **kwargs)


class MovingAverageOptimizer(tf.train.Optimizer):
    """Keeps moving averages of the variables that an optimizer trains, and saves the averages in their place.

    Args:
        opt: a tf.train.Optimizer.
        average_decay: float.
        num_updates: optional, as in tf.train.ExponentialMovingAverage.
        sequential_update: whether the averages wait for the optimizer.
    """

    def __init__(
        self, opt: Any, average_decay: Any = 0.9999, num_updates: Any = None, sequential_update: bool = True
    ) -> None:
        super().__init__(False, "MovingAverage")
        self._optimizer = opt
        self._ema = tf.train.ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._averaged = None
        self._sequential_update = sequential_update

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As the optimizer's."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Returns the op that applies gradients and updates the averages."""
        grads_and_vars = list(grads_and_vars)
        train = self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        variables = [v for g, v in grads_and_vars if g is not None]
        with tf.control_dependencies([train] if self._sequential_update else []):
            average = self._ema.apply(variables)
        self._averaged = {v.op.name: self._ema.average(v) for v in variables}
        return tf.group(train, average, name="train_with_avg")

    def swapping_saver(self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any) -> tf.train.Saver:
        """Returns a Saver that writes the averages under the names of the variables, and vice versa.

        Args:
            var_list: list or dict of variables, all global ones by default.
            name: of the saver.
            **kwargs: of tf.train.Saver.

        Raises:
            RuntimeError: there are no averages yet.
            ValueError: a variable is to be saved without its average, or the other way round.
        """
        if self._averaged is None:
            raise RuntimeError("Must call apply_gradients or minimize before creating the swapping_saver")
        variables = tf.global_variables() if var_list is None else var_list
        if not isinstance(variables, dict):
            variables = _by_saved_name(variables)
        by_op = {part.op.name: (key, part) for key, v in variables.items() for part in _parts(v)}
        saved, mixed = dict(variables), {}
        for name_of_variable, average in self._averaged.items():
            if name_of_variable not in by_op:
                continue
            if average.op.name not in by_op:
                raise ValueError("Variable to swap %s is not in variables to save." % average.op.name)
            (here, variable), (there, _) = by_op[name_of_variable], by_op[average.op.name]
            if variable.dtype.base_dtype == average.dtype.base_dtype:
                saved[here], saved[there] = variables[there], variables[here]
                continue
            behind, master = by_op.get(name_of_variable + MASTER, (None, None))
            keys = [key for key in (here, there, behind) if key is not None]
            mixed.setdefault(here, []).append(Swapped(variable, average, master, keys))
            for key in keys:
                saved.pop(key, None)
        return tf.train.Saver({**saved, **mixed}, name=name, **kwargs)


def _by_saved_name(variables):
    """{name in a checkpoint: the variable, or the list of its parts}."""
    named = {}
    for variable in (part for v in variables for part in _parts(v)):
        info = variable._get_save_slice_info()
        if info is None:
            named[variable.op.name] = variable
        else:
            named.setdefault(info.full_name, []).append(variable)
    return named


def _parts(variable):
    """A variable, or those of a partitioned one, as a list."""
    partitioned = isinstance(variable, (list, tuple)) or hasattr(variable, "_get_variable_list")
    return list(variable) if partitioned else [variable]


class VariableClippingOptimizer(tf.train.Optimizer):
    """Clips the norm of some variables after each update.

    Args:
        opt: a tf.train.Optimizer.
        vars_to_clip_dims: dict variable -> dimensions over which the norm is taken.
        max_norm: float.
        use_locking: bool.
        colocate_clip_ops_with_vars: bool.
        name: of the optimizer.
    """

    def __init__(
        self,
        opt: Any,
        vars_to_clip_dims: Any,
        max_norm: Any,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self._opt = opt
        self._clips = [(var, list(dims)) for var, dims in vars_to_clip_dims.items()]
        self._max_norm = max_norm

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As the optimizer's."""
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """As the optimizer's."""
        return self._opt.get_slot_names(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Returns the op that applies gradients, then clips."""
        grads_and_vars = list(grads_and_vars)
        update = self._opt.apply_gradients(grads_and_vars, global_step=global_step)
        clips = [update]
        with tf.control_dependencies([update]):
            for grad, var in grads_and_vars:
                for other, dims in self._clips if grad is not None else ():
                    if other is var:
                        clips.append(self._clip(grad, var, dims))
        return tf.group(*clips, name=name)

    def _clip(self, grad, var, dims):
        if isinstance(grad, tf.IndexedSlices) and 0 not in dims:
            rows = tf.gather(var.read_value(), grad.indices)
            return tf.scatter_update(var, grad.indices, tf.clip_by_norm(rows, self._max_norm, dims))
        return tf.assign(var, tf.clip_by_norm(var.read_value(), self._max_norm, dims)).op


class MultitaskOptimizerWrapper:
    """An optimizer that leaves a variable and its slots unchanged if its gradient is all zeros.

    Args:
        opt: a tf.train.Optimizer; its update methods are replaced.

    Raises:
        TypeError: `opt` is no optimizer.
    """

    def __init__(self, opt: Any) -> None:
        if not isinstance(opt, tf.train.Optimizer):
            raise TypeError("Supplied optimizer must be an instance of tf.train.Optimizer")
        self._opt = opt
        for name in ("_apply_dense", "_resource_apply_dense", "_apply_sparse", "_resource_apply_sparse"):
            setattr(opt, name, types.MethodType(_unless_zero(getattr(opt, name)), opt))

    def __getattr__(self, name):
        return getattr(self._opt, name)


def _unless_zero(update):
    def updated(optimizer, grad, *args, **kwargs):
        def run():
            with tf.control_dependencies([update(grad, *args, **kwargs)]):
                return tf.no_op()

        return tf.cond(_all_zeros(grad), tf.no_op, run)

    return updated


def _all_zeros(grad):
    return tf.equal(tf.count_nonzero(grad.values if isinstance(grad, tf.IndexedSlices) else grad), 0)


def clip_gradients_by_global_norm(gradients_variables: Any, clip_norm: Any = 20.0) -> tuple[list[Any], Any]:
    """Clips gradients by their global norm, which leaves out those that are all zeros.

    Args:
        gradients_variables: list of (gradient, variable).
        clip_norm: float.

    Returns:
        (list of (gradient, variable), global norm).
    """
    gradients, variables = zip(*gradients_variables)
    norm = tf.global_norm(gradients)
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
    return list(zip(clipped, variables)), norm


def clip_gradients_by_norm(optimizer: Any, clip_norm: Any) -> Any:
    """tf.contrib.estimator's: an optimizer whose gradients are clipped, each by its own norm.

    Args:
        optimizer: a tf.train.Optimizer; it is changed.
        clip_norm: float.

    Returns:
        `optimizer`.
    """
    apply = optimizer.apply_gradients

    def clipped(grads_and_vars, *args, **kwargs):
        pairs = [(g if g is None else tf.clip_by_norm(g, clip_norm), v) for g, v in grads_and_vars]
        return apply(pairs, *args, **kwargs)

    optimizer.apply_gradients = clipped
    return optimizer
