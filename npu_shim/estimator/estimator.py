"""NPUEstimator: tf.estimator.Estimator with an NPURunConfig, whose options go into the session's NpuOptimizer entry.

Source: Ascend adapter of 2023-12 (r1.15); Estimator of TensorFlow 1.15.5 and 2.15.1. Intended differences from the
original: no vendor environment (JOB_ID, ...) is needed; options are written into a copy of the session_config, not into
the user's object, which a second estimator might share; an existing NpuOptimizer entry is completed instead of
duplicated; Grappler's own optimizers are not listed, since they are on by default.
"""

from __future__ import annotations

import logging
import os
import secrets
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat import after_215
from npu_shim.distributed.job import cluster, ranks
from npu_shim.estimator import chief
from npu_shim.estimator.hooks import NPUBroadcastGlobalVariablesHook
from npu_shim.estimator.iterations import SetIterationsVarHook
from npu_shim.loss_scale.steps.hooks import SkippedStepsHook, summaries, tolerant_hooks
from npu_shim.options.collected import LOSS_SCALE
from npu_shim.options.entrances.run_config import NPURunConfig, session_config_of

LOG = logging.getLogger("npu_shim")

# without Estimator (run_config says where) the module still imports; using the classes raises an error with the reason
_ESTIMATOR = getattr(tf, "estimator", None)
_PARENT = getattr(_ESTIMATOR, "Estimator", object)
_SPEC = getattr(_ESTIMATOR, "EstimatorSpec", object)

# environment variables in which a job's platform names the checkpoint to begin with
_RESTORE_FROM = ("LOCAL_CHECKPOINT_DIR", "RESTORE_FROM")
# the collection in which TensorFlow keeps the initializers of its summary file writers (1.15 to 2.15)
_WRITERS = "_SUMMARY_WRITER_V2"


class NPUEstimatorSpec(_SPEC):
    """tf.estimator.EstimatorSpec with a `host_call`.

    Args:
        host_call: None or (function, tensors), tensors a list or a dict. In training the function is called once with
            the tensors (as arguments, or by name) and the operations it returns are run in every session run.

    Raises:
        ValueError: `host_call` is not such a pair.
    """

    def __new__(  # noqa: D102 the class documents it
        cls,
        mode,
        predictions=None,
        loss=None,
        train_op=None,
        eval_metric_ops=None,
        export_outputs=None,
        training_chief_hooks=None,
        training_hooks=None,
        scaffold=None,
        evaluation_hooks=None,
        prediction_hooks=None,
        host_call=None,
    ):
        _require_estimator("NPUEstimatorSpec")
        spec = super().__new__(
            cls,
            mode=mode,
            predictions=predictions,
            loss=loss,
            train_op=train_op,
            eval_metric_ops=eval_metric_ops,
            export_outputs=export_outputs,
            training_chief_hooks=training_chief_hooks,
            training_hooks=training_hooks,
            scaffold=scaffold,
            evaluation_hooks=evaluation_hooks,
            prediction_hooks=prediction_hooks,
        )
        pair = isinstance(host_call, (list, tuple)) and len(host_call) == 2
        if host_call is not None and not (pair and callable(host_call[0])):
            raise ValueError("npu_shim: NPUEstimatorSpec: host_call must be (function, tensors), got %r" % (host_call,))
        spec.host_call = host_call
        return spec

    def _replace(self, **fields):
        """Returns an NPUEstimatorSpec with some fields replaced; TensorFlow's own would lose the host_call."""
        host_call = fields.pop("host_call", self.host_call)
        return NPUEstimatorSpec(*super()._replace(**fields), host_call=host_call)


class NPUEstimator(_PARENT):
    """tf.estimator.Estimator for an NPURunConfig; train, evaluate, predict, export and train_and_evaluate as there.

    Args:
        model_fn: as for Estimator; may return tf.estimator.EstimatorSpec or NPUEstimatorSpec.
        model_dir: folder of checkpoints; equal to `config.model_dir` if both are given. Without any, a folder
            `./model_dir_` with ten random characters is made in the working directory.
        config: NPURunConfig. Its options are written into the NpuOptimizer entry of a copy of its session_config. Where
            the user's entry has a key already, NPURunConfig's option wins if it is other than its default.
        params: dict for model_fn.
        job_start_file: accepted but not read: there is no job server off the NPU.
        warm_start_from: as for Estimator; None takes the environment's LOCAL_CHECKPOINT_DIR, else its RESTORE_FROM, if
            there is one.

    Raises:
        ValueError: `config` is not an NPURunConfig, or model_dir and config.model_dir differ.
        TypeError: an option whose value its parameter_map field cannot hold, for example precision_mode=True.
        RuntimeError: in training, when model_fn returns no EstimatorSpec.
    """

    def __init__(
        self,
        model_fn: Any = None,
        model_dir: str | None = None,
        config: Any = None,
        params: Any = None,
        job_start_file: str = "",
        warm_start_from: Any = None,
    ) -> None:
        _require_estimator("NPUEstimator")
        if not isinstance(config, NPURunConfig):
            raise ValueError("npu_shim: NPUEstimator: config must be an NPURunConfig, got %s" % type(config))
        if model_dir is None and config.model_dir is None:
            model_dir = _new_model_dir()
        session_config = session_config_of(config)
        super().__init__(
            model_fn=model_fn,
            model_dir=model_dir,
            config=config.replace(session_config=session_config),
            params=params,
            warm_start_from=warm_start_from or next(filter(None, map(os.environ.get, _RESTORE_FROM)), None),
        )

    def _assert_members_are_not_overridden(self):
        """Lets this class override Estimator's methods, as the original does."""

    def _call_model_fn(self, features, labels, mode, config):
        try:
            return super()._call_model_fn(features, labels, mode, config)
        except ValueError as error:
            # Estimator's own error if the result is not an EstimatorSpec; in training the original raises another
            by_estimator = error.__traceback__.tb_next is not None and error.__traceback__.tb_next.tb_next is None
            if mode == tf.estimator.ModeKeys.TRAIN and by_estimator and "EstimatorSpec" in str(error):
                raise RuntimeError(
                    "npu_shim: NPUEstimator: model_fn must return an NPUEstimatorSpec or EstimatorSpec for training"
                ) from error
            raise

    def _train_with_estimator_spec(self, estimator_spec, worker_hooks, hooks, *rest):
        worker_hooks = _TrainingHooks(worker_hooks)
        if tf.get_collection(LOSS_SCALE):
            worker_hooks.append(SkippedStepsHook(self._config.log_step_count_steps or 100))
            if self._config.save_summary_steps:
                summaries()
        if ranks.get_ranksize() > 1 and not self._config.horovod_mode:
            worker_hooks.append(NPUBroadcastGlobalVariablesHook(0, ranks.world_rank()))
        per_loop = self._config.iterations_per_loop
        if per_loop > 1:
            # the user's hooks may set the end of training as well as train(steps=, max_steps=)
            worker_hooks.append(
                SetIterationsVarHook(
                    per_loop,
                    estimator_spec.train_op,
                    hooks=[*worker_hooks, *hooks, *estimator_spec.training_hooks],
                    checkpoint_steps=self._config.save_checkpoints_steps,
                    summary_steps=self._config.save_summary_steps,
                )
            )
        if getattr(estimator_spec, "host_call", None) is not None:
            worker_hooks.append(_HostCallHook(*estimator_spec.host_call))
        if ranks.get_ranksize() == 1 or self._config.horovod_mode:
            return super()._train_with_estimator_spec(estimator_spec, worker_hooks, hooks, *rest)
        cluster.start(self._config.session_config)
        if chief.writes(self._model_dir):
            loss = super()._train_with_estimator_spec(estimator_spec, worker_hooks, hooks, *rest)
        else:
            loss = self._train_without_writing(estimator_spec, worker_hooks, hooks, *rest)
        chief.wait()  # what comes next may read the last checkpoint
        return loss

    def _train_without_writing(self, spec, worker_hooks, hooks, global_step, listeners, *rest):
        """Trains as a rank whose checkpoints and summaries another one writes."""
        left = chief.without_savers(spec.training_hooks)
        spec = spec._replace(training_hooks=left, training_chief_hooks=())
        worker_hooks = _TrainingHooks(chief.without_savers(worker_hooks))
        with chief.not_writing(self._config, self._model_dir):
            hooks = chief.without_savers(hooks)
            return super()._train_with_estimator_spec(spec, worker_hooks, hooks, global_step, None, *rest)


class _TrainingHooks(list):
    """Training hooks; the NanTensorHook that Estimator appends is replaced by one that tolerates skipped steps."""

    def append(self, hook):
        super().extend(tolerant_hooks([hook]))


class _HostCallHook(tf.train.SessionRunHook):
    """Runs the results of a host_call's function (operations or tensors, nested, or None) in every session run."""

    def __init__(self, function, tensors):
        results = function(**tensors) if isinstance(tensors, dict) else function(*tensors)
        self._fetches = [fetch for fetch in tf.nest.flatten(results) if fetch is not None]

    def after_create_session(self, session, coord):
        session.run(tf.get_collection(_WRITERS))

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._fetches)


def _require_estimator(name):
    if _PARENT is object:
        raise after_215.without_estimator(name, tf)


def _new_model_dir():
    # not from `random`: a script that seeds it must draw the same numbers with and without an estimator
    path = os.path.join(os.getcwd(), "model_dir_" + secrets.token_hex(5))
    os.makedirs(path)
    LOG.warning("npu_shim: NPUEstimator: no model_dir given, using %s", path)
    return path
