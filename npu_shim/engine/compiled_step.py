"""compile_step: a training step of TensorFlow 1 as one XLA program, with its variables on the device.

Graph, Session or GraphDef -> xla.step_function.Prepared -> StepPrograms: the step as a JAX function, compiled for
feeds of each shape, on a device of the engine (in this process or in the worker)
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, Mapping

import numpy as np

from npu_shim.engine.device.programs import as_result
from npu_shim.engine.step_programs import StepPrograms
from npu_shim.options import engine as options_of_engine
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, nearest, one_of
from npu_shim.xla import rewriting, step_checkpoint, step_function
from npu_shim.xla.sources import Source

ENGINE = "pjrt"


def compile_step(
    graph_or_session: Any,
    fetches: Any,
    feeds: Any = (),
    iterations_per_loop: int = 1,
    initializer: Any = None,
    constants: Mapping[Any, Any] | None = None,
    device: str | None = None,
    engine: str = ENGINE,
    **options: Any,
) -> CompiledStep:
    """Makes a training step (forward, backward, loss scaling, optimizer, state) one XLA program.

    JAX compiles and runs it, in this process or in a worker (`npu-shim engine install`).

    Args:
        graph_or_session: tf.Session, whose variables' values the step starts from; or tf.Graph, or GraphDef.
        fetches: what a step returns, as in sess.run: a tensor, an operation, their names, or a list or dict of them.
            A variable's name gives its value after the step.
        feeds: tensors, or their names, that every call feeds; a list, or a dict to full shapes.
        iterations_per_loop: steps in one call, a loop on the device. Each feed then has a leading dimension of this
            size, and the results are those of the last step, as in a session with iterations_per_loop.
        initializer: operation, or its name, that initializes the variables if there is no session.
        constants: dict of tensors or their names to values that become part of the program.
        device: "CPU" or "GPU", which JAX must find; None for what it finds.
        engine: "pjrt", for scripts that name it; there is no other.
        **options: as for `npu_shim.rewrite`, and `recompute`: "auto", "off" or "memory", how much of the forward pass
            the backward pass computes again instead of keeping it; `attention`: "auto" or "off", whether attention is
            a kernel on GPUs; `xla_cache`, a folder that keeps compiled programs for later processes; `programs`, how
            many programs are kept, one for each set of feed shapes: beyond it the one that was used least recently
            gives way, and is compiled anew when it is needed. A Session brings its own (those of its NpuOptimizer),
            over which these win. Where a Session has no NpuOptimizer and the call no option, the step is not
            rewritten; a Graph's is, by the defaults, as `npu_shim.rewrite` does; profile "gpu" with
            `precision_mode="must_keep_origin_dtype"` keeps its float32.

    Returns:
        CompiledStep, compiled at its first call.

    Raises:
        ConfigError: a fetch, feed, constant or option is invalid; or there is no JAX.
        PlanError: the graph cannot be rewritten.

    Example:
        >>> step = npu_shim.compile_step(sess, [loss, train_op], [x, y])
        >>> value, _ = step({x: images, y: labels})
    """
    source = Source.of(graph_or_session)
    if not isinstance(iterations_per_loop, int) or iterations_per_loop < 1:
        raise ConfigError("iterations_per_loop must be an int above 0, got %r" % (iterations_per_loop,))
    _require_engine(engine)
    if initializer is not None:
        source = source.initialized(initializer)
    most = rewriting.programs_of(source, options)
    wanted = list(fetches.values()) if isinstance(fetches, dict) else fetches
    source = source.of_step(wanted)
    prepared = step_function.prepare(source, wanted, feeds, constants, None, device, **options)
    programs = StepPrograms(prepared, iterations_per_loop, device, rewriting.cache_of(source, options), most)
    return CompiledStep(prepared, source, fetches, iterations_per_loop, programs)


def _require_engine(engine: str) -> None:
    """Raises ConfigError for the name of another engine than ours, or where there is no JAX."""
    if engine == "tensorflow":
        raise ConfigError('JAX\'s XLA compiles all steps now: leave out engine="tensorflow"')
    one_of(engine, (ENGINE,), "engine")
    options_of_engine.require_jax("compile_step")


class CompiledStep:
    """A training step with its state, compiled at its first call and again for feeds of other shapes.

    Random ops with a seed draw what they draw in a session on a CPU, from their seeds and the step number: the same
    state and feeds give the same results, in single steps and in a loop.

    Args:
        prepared: step_function.Prepared.
        source: the `sources.Source` of the step.
        fetches: in the user's form.
        iterations_per_loop: steps in one call.
        programs: the StepPrograms that run them.

    Attributes:
        plan: the precision Plan, None if the step was not rewritten.
    """

    def __init__(
        self, prepared: step_function.Prepared, source: Source, fetches: Any, iterations_per_loop: int,
        programs: StepPrograms,
    ) -> None:  # fmt: skip
        self.plan = prepared.plan
        self._feeds = {feed.name: feed for feed in prepared.feeds.values()}
        self._wanted, self._fetches, self._count = prepared.fetches, fetches, iterations_per_loop
        self._source, self._programs = source, programs
        self._variables = {variable.name: variable for variable in prepared.state}
        self._others = source.other_values(self._variables)
        self._kept = {name: variable for name, variable in self._variables.items() if not source.is_local(name)}
        self._keys = step_checkpoint.keys_of(source.graph, [*self._kept, *self._others])
        self._has_values = source.session is not None or all(map(step_checkpoint.is_of_random_ops, self._variables))

    @property
    def recomputation(self) -> Any:
        """What the last program computes again, a `rematerialization.report.Recomputation`; None before a call."""
        return self._programs.recomputation

    @property
    def attention(self) -> Any:
        """What attention of the last compiled program is a kernel, an `attention.report.Attention`; None before."""
        return self._programs.attention

    def __call__(self, feeds: Mapping[Any, Any] | None = None) -> Any:
        """Runs one step, or `iterations_per_loop` of them.

        Args:
            feeds: dict of every feed (tensor or name) to its value, array_like.

        Returns:
            The fetches in the structure in which they were given: np.ndarray for a tensor, None for an operation.

        Raises:
            ConfigError: a feed is missing, unknown, or has the wrong shape or dtype; the variables have no values.
            PlanError: the step cannot be compiled; the error names the op, its node, and the feeds that it depends on.
            RuntimeError: the device failed; the error says which state the step has.
        """
        self._require_values()
        results = iter(self._programs.run(self._arrays(feeds or {})))
        return self._like_fetches([None if isinstance(fetch, str) else next(results) for fetch in self._wanted])

    def state(self) -> dict[str, np.ndarray]:
        """Returns the variables of the step: dict of name to np.ndarray, copied from the device.

        Raises:
            ConfigError: they have no values yet.
            RuntimeError: as of a call.
        """
        self._require_values()
        self._programs.to_variables()
        return {name: as_result(variable.value) for name, variable in self._variables.items()}

    def save(self, prefix: str | os.PathLike) -> str:
        """Writes a TensorFlow checkpoint, which tf.train.Saver restores; returns its prefix.

        It contains the step's variables, the graph's other global variables as they were when the step was made, and
        the state of random ops.

        Args:
            prefix: path of the checkpoint, str or os.PathLike.

        Raises:
            ConfigError: the variables have no values yet.
            RuntimeError: as of a call.
        """
        self._require_values()
        self._programs.to_variables()
        values = {**self._others, **{name: variable.value for name, variable in self._kept.items()}}
        with tf_internals.eager_mode():
            return step_checkpoint.save(prefix, values, self._keys)

    def load(self, prefix: str | os.PathLike) -> None:
        """Restores the step's variables from a TensorFlow checkpoint.

        Args:
            prefix: path of the checkpoint, or of a folder, whose latest checkpoint is loaded.

        Raises:
            ConfigError: there is no checkpoint, or it lacks a variable of this shape and dtype.
            RuntimeError: as of a call.
        """
        self._programs.to_variables()  # the checkpoint need not have all
        with tf_internals.eager_mode():
            values = step_checkpoint.load(prefix, self._kept, self._keys)
        self._programs.from_variables(values)
        self._has_values = True

    def _require_values(self):
        if not self._has_values:
            ways = "give compile_step a Session or an initializer, or load a checkpoint"
            raise ConfigError("the step's variables have no values: %s" % ways)

    def _arrays(self, feeds):
        """Checks the feeds and returns their values in the order of the program's arguments."""
        if not hasattr(feeds, "items"):
            raise ConfigError("feeds are %s, expected a dict of tensors or their names" % type(feeds).__name__)
        named = [(self._source.feed(feed).name, value) for feed, value in feeds.items()]
        given, known = dict(named), self._feeds
        problems = [
            "feed '%s' is given twice" % name for name, count in Counter(n for n, _ in named).items() if count > 1
        ]
        problems += ["feed '%s' is not one of the step's%s" % (n, nearest(n, known)) for n in given if n not in known]
        problems += ["feed '%s' is missing" % name for name in known if name not in given]
        if problems:
            raise ConfigError(*problems)
        return [self._array(feed, given[name]) for name, feed in known.items()]

    def _array(self, feed, value):
        array = feed.array(value)
        shape = array.shape
        if self._count > 1:
            if shape[:1] != (self._count,):
                expected = "one value for each of the %d steps of iterations_per_loop" % self._count
                raise ConfigError("feed '%s' has shape %s, expected %s" % (feed.name, shape, expected))
            shape = shape[1:]
        feed.with_shape(shape)
        return array

    def _like_fetches(self, values):
        if isinstance(self._fetches, dict):
            return dict(zip(self._fetches, values))
        return values if isinstance(self._fetches, (list, tuple)) else values[0]
