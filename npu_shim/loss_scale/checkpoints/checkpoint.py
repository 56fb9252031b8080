"""Restores checkpoints of the plain optimizer and of the other loss-scale optimizers, in every direction."""

from __future__ import annotations

import re
from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.checkpoint.plan import OBJECT_GRAPH
from npu_shim.loss_scale.checkpoints import restored
from npu_shim.loss_scale.checkpoints.names import canonical, is_state, match
from npu_shim.rewriter.errors import ConfigError


class LossScaleSaver(tf.train.Saver):
    """A tf.train.Saver that finds `cond/beta1_power` as `beta1_power` and the reverse, `current_loss_scale` as
    `loss_scale`, counters of 32 and of 64 bits, and lets start anew what the file does not have of loss-scale state and
    of gradients that AccumulatingOptimizer gathers.

    It saves what tf.train.Saver saves, and restores what needs none of this as it does, partitioned variables and
    tables too, with `builder=CastingSaverBuilder()` in any floating-point dtype. Use it in place of it, in a Scaffold
    or a MonitoredTrainingSession as well. No ops are added by `restore`.
    """  # noqa: D205 - one sentence, several lines

    _builders_restore = None

    def build(self) -> None:
        """Builds the ops, see tf.train.Saver."""
        super().build()
        # CastingSaverBuilder gives its Saver a `restore` of its own, which has its turn in the one below
        self._builders_restore = vars(self).pop("restore", None)

    def restore(self, sess: tf.Session, save_path: str) -> None:
        """Restores the variables.

        Raises:
            ConfigError: variables have no matching tensor in the file, or several; all are named, nothing is changed.
        """
        save_path = save_path if save_path is None else tf.compat.as_text(save_path)
        as_told = not hasattr(sess, "graph")  # by the builder's `restore`, which has been here before
        if as_told or self._is_empty or save_path is None or not tf.train.checkpoint_exists(save_path):
            return super().restore(sess, save_path)
        as_built = self._builders_restore or super().restore
        targets, castable = restored.targets(self, sess.graph), self._builders_restore is not None
        stored = _stored(tf.train.NewCheckpointReader(save_path))
        if OBJECT_GRAPH in stored or all(t.name in stored and t.fits(stored[t.name], castable) for t in targets):
            return as_built(sess, save_path)
        sources = _sources({t.name: (t.dtype, t.shape) for t in targets}, stored, save_path, castable)
        anew = restored.initializers(self, sess.graph, [name for name, source in sources.items() if source is None])
        feeds = restored.values(targets, sources, stored, save_path)
        sess.run(self.saver_def.restore_op_name, feeds)
        sess.run(anew)
        return None


def init_from_checkpoint(checkpoint: str, variables: Iterable[Any] | None = None) -> None:
    """Makes the initializers read a checkpoint of any of the wrappers: tf.train.init_from_checkpoint for a model_fn.

    Loss-scale state and gathered gradients that are missing in the file keep their initializers.

    Args:
        checkpoint: a checkpoint's prefix or its folder.
        variables: list of variables; None means all global variables except global_step.

    Raises:
        ConfigError: a variable has no matching tensor in the file, or several.
    """
    if variables is None:
        variables = [v for v in tf.global_variables() if v is not tf.train.get_global_step()]
    by_name = _whole(variables)
    reader = tf.train.load_checkpoint(checkpoint)
    wanted = {name: _described(variable) for name, variable in by_name.items()}
    sources = _sources(wanted, _stored(reader), checkpoint)
    for name, source in sorted(sources.items()):
        if source is None:
            continue
        if str(reader.get_variable_to_dtype_map()[source].name) == wanted[name][0]:
            tf.train.init_from_checkpoint(checkpoint, {source: by_name[name]})
        else:  # a counter of the other width, one number
            value = reader.get_tensor(source).astype(wanted[name][0])
            by_name[name]._initializer_op = tf.assign(by_name[name], value).op


def warm_start_settings(checkpoint: str) -> tf.estimator.WarmStartSettings:
    """Returns tf.estimator.WarmStartSettings for a checkpoint without global_step and loss-scale state.

    The new run has its own loss scale, as it has its own step. Optimizer state is found under the names of both the
    wrapped and the plain optimizer.
    """
    stored = [n for n, _ in tf.train.list_variables(checkpoint) if n != "global_step" and not is_state(n)]
    renamed = {canonical(name): name for name in stored if canonical(name) != name}
    return tf.estimator.WarmStartSettings(
        ckpt_to_initialize_from=checkpoint,
        vars_to_warm_start=[_pattern(canonical(name)) for name in stored],
        var_name_to_prev_var_name=renamed,
    )


def _pattern(name):
    """A regular expression for a variable of that name, or its parts: w/part_0, and w/part_0/Momentum of a slot."""
    part = r"(/part_\d+)?"
    return "^%s%s:0$" % ((part + "/").join(map(re.escape, name.split("/"))), part)


def _whole(variables):
    """Name in a checkpoint -> the variable, or the list of its parts."""
    by_name = {}
    for variable in variables:
        for part in variable._get_variable_list() if hasattr(variable, "_get_variable_list") else [variable]:
            slices = part._get_save_slice_info()
            if slices is None:
                by_name[part.op.name] = part
            else:
                by_name.setdefault(slices.full_name, []).append(part)
    return by_name


def _described(variable):
    if isinstance(variable, list):
        return variable[0].dtype.base_dtype.name, tuple(variable[0]._get_save_slice_info().full_shape)
    shape = variable.shape
    return variable.dtype.base_dtype.name, tuple(shape.as_list()) if shape.is_fully_defined() else None


def _stored(reader):
    shapes = reader.get_variable_to_shape_map()
    return {name: (dtype.name, tuple(shapes[name])) for name, dtype in reader.get_variable_to_dtype_map().items()}


def _sources(wanted, stored, where, castable=False):
    sources, problems = match(wanted, stored, castable)
    if problems:
        raise ConfigError(*["%s: %s" % (where, problem) for problem in problems])
    return sources
