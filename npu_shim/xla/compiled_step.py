"""compile_step: a training step of TensorFlow 1 as one XLA program, with its variables on the device."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections import Counter
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, nearest, one_of
from npu_shim.rewriter.ir import graphdef
from npu_shim.session import devices
from npu_shim.step import switch
from npu_shim.xla import known_feeds, open_rows, recent, rewriting, step_checkpoint, step_function
from npu_shim.xla.passes.legalize.site import NotConstant
from npu_shim.xla.passes.shapes import compile_time, dynamic_shapes
from npu_shim.xla.refusals import hlo_of, parsed, xla_errors
from npu_shim.xla.sources import Source

# what runs the programs; the one on PJRT is in a layer above, and loaded on request
ENGINES = {"tensorflow": "npu_shim.xla.compiled_step", "pjrt": "npu_shim.engine.compiled"}


def compile_step(
    graph_or_session: Any,
    fetches: Any,
    feeds: Any = (),
    iterations_per_loop: int = 1,
    initializer: Any = None,
    constants: Mapping[Any, Any] | None = None,
    device: str | None = None,
    engine: str = "tensorflow",
    **options: Any,
) -> CompiledStep:
    """Makes a training step (forward, backward, loss scaling, optimizer, state) one XLA program.

    Args:
        graph_or_session: tf.Session, whose variables' values the step starts from; or tf.Graph, or GraphDef.
        fetches: what a step returns, as in sess.run: a tensor, an operation, their names, or a list or dict of them.
            A variable's name gives its value after the step.
        feeds: tensors, or their names, that every call feeds; a list, or a dict to full shapes.
        iterations_per_loop: steps in one call, a loop on the device. Each feed then has a leading dimension of this
            size, and the results are those of the last step, as in a session with iterations_per_loop.
        initializer: operation, or its name, that initializes the variables if there is no session.
        constants: dict of tensors or their names to values that become part of the program.
        device: "CPU" or "GPU", the target; a step for a CPU computes low precision with float32's kernels.
        engine: what compiles and runs the program: "tensorflow", its own XLA; or "pjrt", today's XLA through JAX, in
            this process or in a worker, see `npu-shim engine install`.
        **options: as for `npu_shim.rewrite`, and `recompute`: "auto", "off" or "memory", how much of the forward pass
            the backward pass computes again instead of keeping it; `attention`: "auto" or "off", whether attention is
            a kernel in programs of engine "pjrt" on GPUs; `xla_cache`, a folder in which engine "pjrt" keeps
            compiled programs for later processes; `programs`, how many programs are kept, one for each set of feed
            shapes: beyond it the one that was used least recently gives way, and is compiled anew when it is needed. A
            Session brings its own (those of its NpuOptimizer), over which these win. Where a Session has no
            NpuOptimizer and the call no option, the step is not rewritten; a Graph's is, by the defaults, as
            `npu_shim.rewrite` does; profile "gpu" with `precision_mode="must_keep_origin_dtype"` keeps its float32.

    Returns:
        CompiledStep, compiled at its first call.

    Raises:
        ConfigError: a fetch, feed, constant or option is invalid.
        PlanError: the graph cannot be rewritten.

    Example:
        >>> step = npu_shim.compile_step(sess, [loss, train_op], [x, y])
        >>> value, _ = step({x: images, y: labels})
    """
    source = Source.of(graph_or_session)
    if not isinstance(iterations_per_loop, int) or iterations_per_loop < 1:
        raise ConfigError("iterations_per_loop must be an int above 0, got %r" % (iterations_per_loop,))
    running = importlib.import_module(ENGINES[one_of(engine, ENGINES, "engine")]).Running
    if initializer is not None:
        source = source.initialized(initializer)
    most = rewriting.programs_of(source, options)
    wanted = list(fetches.values()) if isinstance(fetches, dict) else fetches
    source = source.of_step(wanted)
    target = device or devices.accelerator()
    with switch.for_engine() if engine == "pjrt" else contextlib.nullcontext():
        prepared = step_function.prepare(source, wanted, feeds, constants, None, target, **options)
    run_one = running(prepared, iterations_per_loop, device, rewriting.cache_of(source, options), most)
    return CompiledStep(prepared, source, fetches, iterations_per_loop, run_one)


class CompiledStep:
    """A training step with its state, compiled at its first call and again for feeds of other shapes.

    Random ops draw from their seeds and the step number, see `random_ops`: the same state and feeds give the same
    results, in single steps and in a loop.

    Args:
        prepared: step_function.Prepared.
        source: the `sources.Source` of the step.
        fetches: in the user's form.
        iterations_per_loop: steps in one call.
        running: what compiles and runs the programs, a `Running`.

    Attributes:
        plan: the precision Plan, None if the step was not rewritten.
    """

    def __init__(
        self, prepared: step_function.Prepared, source: Source, fetches: Any, iterations_per_loop: int, running: Any
    ) -> None:
        self.plan = prepared.plan
        self._prepared, self._fetches, self._count = prepared, fetches, iterations_per_loop
        self._source, self._running = source, running
        self._variables = {variable.name: variable.variable for variable in prepared.state}
        self._others = source.other_values(self._variables)
        self._kept = {name: variable for name, variable in self._variables.items() if not source.is_local(name)}
        self._keys = step_checkpoint.keys_of(source.graph, [*self._kept, *self._others])
        self._has_values = source.session is not None or all(map(step_checkpoint.is_of_random_ops, self._variables))

    @property
    def recomputation(self) -> Any:
        """What the last program computes again, a `rematerialization.report.Recomputation`; None before a call."""
        return self._running.recomputation

    @property
    def attention(self) -> Any:
        """What attention of the last compiled program is a kernel, an `attention.report.Attention`; None before."""
        return self._running.attention

    def __call__(self, feeds: Mapping[Any, Any] | None = None) -> Any:
        """Runs one step, or `iterations_per_loop` of them.

        Args:
            feeds: dict of every feed (tensor or name) to its value, array_like.

        Returns:
            The fetches in the structure in which they were given: np.ndarray for a tensor, None for an operation.

        Raises:
            ConfigError: a feed is missing, unknown, or has the wrong shape or dtype; the variables have no values.
            PlanError: XLA cannot compile an op; the error names its node.
            RuntimeError: the device of engine "pjrt" failed; the error says which state the step has.
        """
        self._require_values()
        arrays = self._arrays(feeds or {})
        shapes = tuple(array.shape[self._count > 1 :] for array in arrays)
        with tf_internals.eager_mode(), xla_errors(self._prepared.graph_def):
            results = iter(self._running.run(arrays, shapes))
        return self._like_fetches([None if isinstance(f, str) else next(results) for f in self._prepared.fetches])

    def state(self) -> dict[str, np.ndarray]:
        """Returns the variables of the step: dict of name to np.ndarray, copied from the device.

        Raises:
            ConfigError: they have no values yet.
        """
        self._require_values()
        with tf_internals.eager_mode():
            self._running.to_variables()
            return {name: variable.numpy() for name, variable in self._variables.items()}

    def save(self, prefix: str | os.PathLike) -> str:
        """Writes a TensorFlow checkpoint, which tf.train.Saver restores; returns its prefix.

        It contains the step's variables, the graph's other global variables as they were when the step was made, and
        the state of random ops.

        Args:
            prefix: path of the checkpoint, str or os.PathLike.

        Raises:
            ConfigError: the variables have no values yet.
        """
        self._require_values()
        with tf_internals.eager_mode():
            self._running.to_variables()
            return step_checkpoint.save(prefix, {**self._others, **self._kept}, self._keys)

    def load(self, prefix: str | os.PathLike) -> None:
        """Restores the step's variables from a TensorFlow checkpoint.

        Args:
            prefix: path of the checkpoint, or of a folder, whose latest checkpoint is loaded.

        Raises:
            ConfigError: there is no checkpoint, or it lacks a variable of this shape and dtype.
        """
        with tf_internals.eager_mode():
            self._running.to_variables()  # the checkpoint need not have all
            for name, value in step_checkpoint.load(prefix, self._kept, self._keys).items():
                self._variables[name].assign(value)
            self._running.from_variables()
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
        given, known = dict(named), {feed.name: feed for feed in self._prepared.feeds.values()}
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


class Running:
    """Compiles and runs a step's programs by TensorFlow's XLA, on the variables themselves, in eager mode.

    Args:
        prepared: step_function.Prepared.
        count: steps in one call.
        device: what `compile_step` was given.
        cache: not used: TensorFlow keeps no programs of whole steps.
        most: how many programs are kept. TensorFlow 2.15's own cache keeps the machine code of those that gave way.

    Attributes:
        recomputation, attention: as those of `CompiledStep`.

    Raises:
        ConfigError: this TensorFlow makes no program of a step.
    """

    def __init__(
        self, prepared: step_function.Prepared, count: int, device: str | None, cache: str = "", most: int = recent.MOST
    ) -> None:
        step_function.require_converter()
        self.recomputation: Any = None
        self.attention: Any = None
        self._prepared, self._count, self._names = prepared, count, list(prepared.feeds)
        self._programs = recent.Recent(most)  # shapes of the feeds, and values of those that are known -> _Program
        self._known = known_feeds.Known(prepared, count)

    def run(self, arrays: Any, shapes: Any) -> list[np.ndarray]:
        """Runs a call's steps: takes the feeds and their shapes in a step, and returns the fetched values."""
        program = self._loaded(arrays, shapes)
        program.require_sizes(arrays)
        return [result.numpy() for result in program.run(*[tf.constant(array) for array in arrays])]

    def _loaded(self, arrays, shapes):
        """The _Program for feeds of these shapes; where sizes are open, for these lengths."""
        key = (shapes, *self._known.key(arrays))
        program = self._programs.get(key)
        if program is None:
            try:
                program = self._make_program(shapes, arrays)
            except NotConstant as reason:
                if not known_feeds.says_sizes(self._prepared, reason.node) or not self._known.more():
                    raise
            if program is None or (program.may_be_open and self._known.more()):
                return self._loaded(arrays, shapes)
            self._programs.add(key, program)
        return program

    def _make_program(self, shapes, arrays):
        step = self._known.prepared(arrays).for_shapes(shapes)
        self.recomputation, self.attention = step.recomputation, step.attention
        return _Program(step, self._names, self._count)

    def to_variables(self) -> None:
        """Gives the variables of the Prepared their newest values, which they have here."""

    def from_variables(self) -> None:
        """Takes the values of the variables of the Prepared for the newest."""


class _Program:
    """A step compiled for some shapes.

    XLA makes constants of the feeds that it must know, such as lengths: it compiles the step again for each value, and
    which sizes depend on the data differs. In a loop of steps a feed is no constant.

    Attributes:
        run: the compiled function.
        may_be_open: whether a size may depend on the data.

    Args:
        step: step_function.StepFunction.
        feeds: names of its feeds in its graph, in their order.
        count: steps in one call.
    """

    def __init__(self, step: step_function.StepFunction, feeds: Sequence[str], count: int) -> None:
        self._step, self._count = step, count
        self._looped, self._loop_is_sound = iterations(step, count), False
        self.run = compiled(step, count, self._looped)
        self.may_be_open = step.unsized or dynamic_shapes.may_be_open_inside(graphdef.opened(step.graph_def))
        self._feeds, self._constants = feeds, list[int]()  # numbers of the feeds that XLA may make constants of
        self._sound: set[tuple[bytes, ...]] = set()  # values of those, of which the sizes are known to be right

    def require_sizes(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises PlanError for sizes that depend on the data, and with which XLA computes wrongly for those feeds."""
        if not self.may_be_open:
            return
        if self._looped and not self._loop_is_sound:
            self._require_sizes(())
            self._loop_is_sound = True
        for feeds in self._outside_of_loop(arrays):
            if self._values(feeds) not in self._sound:
                self._require_sizes(feeds)
                self._sound.add(self._values(feeds))

    def _outside_of_loop(self, arrays):
        """The feeds of each step that is no iteration of a loop."""
        if self._count == 1:
            return [arrays]
        return [[array[at] for array in arrays] for at in range(self._looped, self._count)]

    def _values(self, feeds):
        return tuple(feeds[number].tobytes() for number in self._constants)

    def _require_sizes(self, feeds: Sequence[np.ndarray]) -> None:
        module = parsed(hlo_of(self._step, "hlo_serialized", feeds))
        if len(module.host_program_shape.parameters) < len(self._step.feeds) + len(self._step.state):
            library = {function.signature.name: function for function in self._step.graph_def.library.function}
            asked = compile_time.asked(self._step.graph_def.node, library)
            self._constants = [number for number, name in enumerate(self._feeds) if name in asked]
        if self._step.unsized:
            open_rows.require_sized_branches(module)
        open_rows.require_bounds(module)
        open_rows.require_counts_of_loops(module)
        open_rows.require_no_reversal(module)


def iterations(step: step_function.StepFunction, count: int) -> int:
    """Returns how many of `count` steps are iterations of a loop on the device; the others follow it, a call each.

    Where the shape of a result is not known, the last step follows the loop. It is a program of its own: within one,
    XLA makes a constant of what a variable holds before the loop if it wants to know the variable's value, and the last
    step would start from that (TensorFlow 2.15.1).

    On a CPU, a step with convolutions is never in a loop: XLA has fast convolutions only outside of loops; those inside
    are ten times slower and round differently (TensorFlow 2.15.1).
    """
    if count == 1 or (devices.accelerator() == "CPU" and has_convolutions(step.graph_def)):
        return 0
    function: Any = step.function
    carries_results = all(result.shape.is_fully_defined() for result in function.outputs)
    return count if carries_results else count - 1


def compiled(step: step_function.StepFunction, count: int, looped: int) -> Callable[..., Any]:
    """Returns a compiled function that runs a step `count` times and returns the results of the last.

    Args:
        step: a StepFunction.
        count: steps in one call; where they are several, each argument is [count, ...].
        looped: as of `iterations`.
    """
    one = step.compiled
    if count == 1:
        return one
    loop = tf.function(_loop(step.function, looped, looped == count), autograph=False, jit_compile=True)
    if looped == count:
        return loop

    def steps(*stacked):
        if looped:
            loop(*[batch[:looped] for batch in stacked])
        return [one(*[batch[number] for batch in stacked]) for number in range(looped, count)][-1]

    return steps


def has_convolutions(graph_def: Any) -> bool:
    """Returns whether a GraphDef or one of its functions has convolutions."""
    bodies = [function.node_def for function in graph_def.library.function]
    return any("Conv" in node.op for nodes in [graph_def.node, *bodies] for node in nodes)


def _loop(function: Any, count: int, carried: bool) -> Callable[..., Any]:
    """Returns a function that runs a step's function `count` times in a while loop on the device.

    Args:
        function: of a StepFunction.
        count: at least 1.
        carried: whether it returns the results of the last step, whose shapes are known; or none.

    Returns:
        A function of stacked arguments, [count, ...] each.
    """

    def steps(*stacked):
        def step(number, *_):
            results = function(*[batch[number] for batch in stacked])
            return (number + 1, *(results if carried else ()))

        start = [tf.zeros(result.shape, result.dtype) for result in function.outputs] if carried else []
        _, *last = tf.while_loop(
            lambda number, *_: number < count, step, [tf.constant(0), *start], return_same_structure=True
        )
        return last

    return steps
