"""A training step of a TensorFlow 1 graph as one function of its feeds and of explicit, named state.

    Graph, Session or GraphDef -> cut out (passes/pruning.py) -> the passes of pipeline.py, and the precision plan
    between them (rewriting.py) -> StepFunction

`compiled_step` runs it; export takes its HLO. The step has the graph's own control edges and no automatic ones, with
one exception: a read that waits for no write runs before the writes (ordering.py).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.options.passes import Watching
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.collector import without_collector
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.rewriter.ir.attributes import Shape
from npu_shim.rewriter.ir.module import Module, Provenance
from npu_shim.rewriter.planner.decisions import Plan
from npu_shim.session.clusters import unchecked
from npu_shim.step import counters, packing, switch
from npu_shim.xla import pipeline, rewriting, states, tracing
from npu_shim.xla.passes import pruning
from npu_shim.xla.passes.attention.report import Attention
from npu_shim.xla.passes.memory.rematerialization.report import Recomputation
from npu_shim.xla.passes.resources import host_reports, random_ops, writers
from npu_shim.xla.sources import Argument, Source
from npu_shim.xla.states import StateVariable

OLDEST = 2, 15


@dataclass(frozen=True)
class StepFunction:
    """One training step, ready to be run or compiled.

    Attributes:
        feeds: the arguments (`sources.Argument`), in the order in which `function` takes them.
        fetches: one for each fetch: an Argument, or the name of an operation, which has no value.
        state: every variable that the step reads or writes, in the order of the HLO's parameters.
        trace: makes `function`.
        graph_def: the step's GraphDef: functional control flow, resource variables, feeds as Placeholders.
        plan: the precision Plan, None if no precision option was given.
        recomputation: what is computed again, a `rematerialization.report.Recomputation`.
        places: fetched name -> what stands for it in graph_def, as inputs name it: "x", "x:1", "^x".
        unsized: whether only the HLO tells if a conditional's branches give different sizes.
        provenance: of the nodes of graph_def that are none of the script's, by name.

    The HLO module of `hlo` has as parameters the feeds, then the state; its result is a tuple of the fetched tensors,
    then the new values of the state variables that are `updated`.
    """

    feeds: tuple[Argument, ...]
    fetches: tuple[Any, ...]
    state: tuple[StateVariable, ...]
    trace: Callable[[], Callable]
    graph_def: Any
    plan: Plan | None
    recomputation: Recomputation
    attention: Attention
    places: Mapping[str, str]
    unsized: bool
    provenance: Mapping[str, Provenance]

    @property
    def function(self) -> Callable:
        """Takes one tensor for each feed and returns the list of the fetched tensors, operations left out.

        It updates the variables. It is traced when it is first asked for, since a program from the cache needs none.

        Raises:
            ConfigError: the graph does not take feeds of these shapes.
        """
        return self._once("_function", self.trace)

    @property
    def compiled(self) -> Any:
        """`function` as a tf.function for eager mode, which XLA compiles when it is called; errors as of `function`."""
        return self._once("_compiled", lambda: tf.function(self.function, autograph=False, jit_compile=True))

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        kept: dict[str, Any] = vars(self)
        if name not in kept:
            kept[name] = make()
        return kept[name]

    def hlo(self, stage: str = "hlo", feeds: Sequence[Any] = ()) -> str | bytes:
        """Returns the step as XLA's HLO.

        Args:
            stage: as for TensorFlow's `experimental_get_compiler_ir`: "hlo" and "optimized_hlo" (text),
                "hlo_serialized" (bytes of an HloModuleProto), ...
            feeds: a value for each feed, of which XLA makes constants where it must know them; empty for none.
        """
        with tf_internals.eager_mode():
            given = map(tf.constant, feeds) if len(feeds) else (tf.TensorSpec(f.shape, f.dtype) for f in self.feeds)
            return self.compiled.experimental_get_compiler_ir(*given)(stage=stage)


def build(
    source: Any,
    fetches: Any,
    feeds: Any = (),
    constants: Mapping[Any, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    device: str | None = None,
    **options: Any,
) -> StepFunction:
    """Makes a StepFunction.

    Args:
        source: tf.Graph, tf.Session, or tf.GraphDef.
        fetches: list of tensors, operations or their names, as for sess.run; a variable's name gives its value after
            the step.
        feeds: dict of tensors or their names to their shapes; or a list of them if the graph has their full shapes.
        constants: dict of tensors or their names to values that become part of the program; for what XLA must know at
            compile time, such as the lengths of a tf.sequence_mask without maxlen.
        values: variable name -> np.ndarray, initial values; None takes those of a Session. A variable without a
            value is zero.
        device: "CPU" or "GPU", the target; a step for a CPU computes low precision with float32's kernels.
        **options: as for `npu_shim.rewrite`. A Session brings its own (those of its NpuOptimizer), over which these
            win; a Session without NpuOptimizer and a call without options is not rewritten.

    Raises:
        ConfigError: a fetch, feed or option is invalid.
        PlanError: the graph cannot be rewritten, or one of its loops cannot be compiled.
    """
    step = prepare(Source.of(source), fetches, feeds, constants, values, device, **options).for_shapes()
    step.function  # noqa: B018  shapes that the graph does not take are told here
    return step


@dataclass(frozen=True)
class Manner:
    """How a step is prepared, as its options say.

    Attributes:
        recompute: one of `options.words.RECOMPUTE`.
        on_cpu: whether it is for a CPU.
        watching: who looks on while passes run.
        attention: one of `options.words.ATTENTION`.
        has_kernels: whether what runs it has kernels for attention.
    """

    recompute: str
    on_cpu: bool
    watching: Watching
    attention: str = "auto"
    has_kernels: bool = False


class _Converted(NamedTuple):
    """What the pipeline RESOURCES makes of a step, for TensorFlow's converter.

    Attributes:
        graph_def: with resource variables and v1 control flow.
        places: fetched name -> what stands for it in graph_def, as inputs name it: "x", "x:1", "^x".
        provenance: of the nodes of graph_def that are none of the script's, by name.
        modules: the module that graph_def was written from, until the first `for_shapes` takes it.
    """

    graph_def: Any
    places: Mapping[str, str]
    provenance: Mapping[str, Provenance]
    modules: list[Module]


@dataclass(frozen=True)
class Prepared:
    """A step before its feeds have full shapes.

    Attributes:
        step: its tf.GraphDef: pruned, rewritten, without devices.
        fetches: as in StepFunction.
        feeds: name of a Placeholder in `step` -> Argument, perhaps with open dimensions.
        state: as in StepFunction.
        plan: as in StepFunction.
        manner: how it is prepared.
        is_interpreted: whether it is for the interpreter of JAX.
        modules: the module of `step` without prints and assertions, until `module_for_jax` takes it.
        draws: its random ops that have a state, as `step.packing.draws` gives them.
    """

    step: Any
    fetches: tuple[Any, ...]
    feeds: Mapping[str, Argument]
    state: tuple[StateVariable, ...]
    plan: Plan | None
    manner: Manner
    is_interpreted: bool = True
    modules: list[Module] = field(default_factory=list, repr=False, compare=False)
    draws: tuple[Any, ...] = ()
    contents: list[bytes] = field(default_factory=list, repr=False, compare=False)  # what `packed` has written
    converted: list[_Converted] = field(default_factory=list, repr=False, compare=False)  # for `graph_def`

    @property
    def before(self) -> Any:
        """`step` for the interpreter of JAX; None where TensorFlow converts it."""
        return self.step if self.is_interpreted else None

    @property
    def own(self) -> frozenset[str]:
        """Names of the nodes that are the script's own."""
        return frozenset(node.name for node in self.step.node)

    @property
    def graph_def(self) -> Any:
        """The step with resource variables, as TensorFlow's converter takes it; made when it is first asked for."""
        return self._resources().graph_def

    @property
    def places(self) -> Mapping[str, str]:
        """Fetched name -> what stands for it in graph_def, as inputs name it: "x", "x:1", "^x"."""
        return self._resources().places

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        """Where the nodes of graph_def come from that are none of the script's, by name."""
        return self._resources().provenance

    def with_graph(self, graph_def: Any) -> Prepared:
        """The same with another `graph_def`."""
        return replace(self, converted=[self._resources()._replace(graph_def=graph_def)])

    def _resources(self) -> _Converted:
        if not self.converted:
            module = self.module_for_jax()
            graph_def = pipeline.run(pipeline.RESOURCES, module, pipeline.Context(), self.manner.watching)
            places = module.results()
            module.graph.results = {n: module.graph.value(text) for n, text in _results(places, graph_def).items()}
            self.converted.append(_Converted(graph_def, places, module.provenance(self.own), [module]))
        return self.converted[0]

    @property
    def packed(self) -> bytes:
        """`step` as `step.packing` writes it; errors as of `as_packed`."""
        if not self.contents:
            module = self.module_for_jax()
            self.contents.append(self.as_packed(module))
            module.release()
        return self.contents[0]

    def as_packed(self, module: Module) -> bytes:
        """A module of the step as `step.packing` writes it.

        Raises:
            PlanError: an op is not known to this TensorFlow.
        """
        feeds = {name: feed.name for name, feed in self.feeds.items()}
        return packing.packed(module, feeds, _asked_again(map(_name, self.fetches)))

    def module_for_jax(self) -> Module:
        """A module of `step`, without prints and assertions."""
        with contextlib.suppress(IndexError):
            return self.modules.pop()
        return _without_reports(self.step, self.fetches)

    def on(self, platform: str) -> Prepared:
        """The same as a program for another platform, as JAX names it: "cpu", "gpu"."""
        is_cpu = platform == "cpu"
        return replace(self, manner=replace(self.manner, on_cpu=is_cpu, has_kernels=not is_cpu))

    def as_program(self) -> Prepared:
        """The same as a program that JAX compiles, on a GPU with its kernels unless it is for a CPU."""
        return replace(self, manner=replace(self.manner, has_kernels=not self.manner.on_cpu))

    @without_collector()
    def for_shapes(self, shapes: Sequence[Any] = ()) -> StepFunction:
        """Returns the StepFunction for feeds of these shapes (in the order of `feeds`; empty for the graph's own).

        Raises:
            ConfigError: a shape does not fit the graph's, or is not full; or this TensorFlow makes no programs.
            PlanError: a loop cannot be compiled.
        """
        require_converter()
        feeds = self._sized_feeds(shapes)
        manner = self.manner
        context = pipeline.Context(manner.recompute, manner.on_cpu, manner.attention, manner.has_kernels)
        with _shapes_that_fit(feeds):
            module = self._module()
            _set_shapes(module.graph, feeds)
            graph_def = pipeline.run(pipeline.SHAPES, module, context, manner.watching)
            provenance = {**self.provenance, **module.provenance(self.own)}
            module.release()

        @without_collector()
        def trace():
            with _shapes_that_fit(feeds), tf_internals.eager_mode():
                return tracing.traced(graph_def, self.fetches, self.places, feeds, state)

        state = tuple(variable for variable in self.state if not variable.name.startswith(counters.STATE))
        given = tuple(feeds.values())
        told = (self.plan, context.recomputation, context.fused, self.places, context.unsized, provenance)
        return StepFunction(given, self.fetches, state, trace, graph_def, *told)

    @contextlib.contextmanager
    def sized(self, module: Module, shapes: Sequence[Any]) -> Iterator[None]:
        """Context for a module whose feeds it gives these shapes; errors as of `for_shapes`."""
        feeds = self._sized_feeds(shapes)
        with _shapes_that_fit(feeds):
            _set_shapes(module.graph, feeds)
            yield

    def _sized_feeds(self, shapes: Sequence[Any]) -> dict[str, Argument]:
        shapes = shapes or [None] * len(self.feeds)
        return {name: feed.with_shape(shape) for (name, feed), shape in zip(self.feeds.items(), shapes)}

    def _module(self) -> Module:
        """The module of graph_def, whose results are the places and what advances the state of random ops."""
        with contextlib.suppress(IndexError):
            module = self._resources().modules.pop()
            if module.source is self.graph_def:
                return module
        return pipeline.module_of(self.graph_def, _results(self.places, self.graph_def))


def _results(places, graph_def):
    return {**places, **pipeline.results_of(random_ops.advances(graph_def))}


def _set_shapes(graph, feeds):
    """Gives Placeholders the shapes of their feeds."""
    for name, feed in feeds.items():
        shape = Shape(tuple(feed.shape.as_list()))
        if name in graph and graph[name].attrs.get("shape") != shape:
            graph[name].attrs["shape"] = shape


@contextlib.contextmanager
def _shapes_that_fit(feeds):
    """Context in which TensorFlow's errors about shapes name the feeds and their shapes."""
    try:
        yield
    except (ConfigError, PlanError):
        raise
    except ValueError as reason:
        given = ", ".join("'%s' of shape %s" % (feed.name, feed.shape) for feed in feeds.values())
        cause, _, more = str(reason).partition("\n")
        text = "%s; so the graph does not take feeds %s" % (cause.rstrip(".,"), given or "{}")
        raise ConfigError(text + ("\n" + more if more else "")) from reason


def require_converter() -> None:
    """Raises ConfigError where TensorFlow makes no program of a step."""
    if tuple(map(int, tf.__version__.split(".")[:2])) < OLDEST:
        raise ConfigError("a step is compiled by TensorFlow %d.%d or later, this is %s" % (*OLDEST, tf.__version__))


@without_collector()
def prepare(
    source: Source,
    fetches: Any,
    feeds: Any = (),
    constants: Mapping[Any, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    device: str | None = None,
    **options: Any,
) -> Prepared:
    """Makes a Prepared from a `Source`; arguments and errors as for `build`, but feeds may have open shapes."""
    if not switch.is_on():
        require_converter()
    wanted = tuple(source.fetch(fetch) for fetch in (fetches if isinstance(fetches, (list, tuple)) else [fetches]))
    if not wanted:
        raise ConfigError("fetches is %r, expected at least one tensor or operation" % (fetches,))
    texts = [argument.name for argument in wanted if isinstance(argument, Argument) and argument.dtype == tf.string]
    if texts:
        raise ConfigError("fetch '%s' is text, which XLA does not compute; fetch it in a session" % texts[0])
    fed, fixed = _given(source, feeds, constants or {})
    nodes = [_name(fetch).partition(":")[0] for fetch in wanted]
    graph_def, placeholders = pruning.cut_out(source.graph_def, nodes, fed, fixed)
    asked = rewriting.options_of(source, options)
    graph_def = writers.clear_containers(graph_def, source.graph_def)
    graph_def = checked(graph_def, nodes, placeholders, asked.watching)
    names = [*map(_name, wanted)]
    graph_def, plan = rewriting.rewritten(source, graph_def, names, placeholders, asked.values, device)
    manner = Manner(asked.recompute, device == "CPU", asked.watching, asked.attention)
    feeds = dict(zip(placeholders, fed))
    return lowered(graph_def, wanted, feeds, plan, source, manner, values, switch.is_on(), may_convert=True)


def lowered(
    graph_def: Any,
    wanted: Sequence[Any],
    feeds: Mapping[str, Argument],
    plan: Plan | None,
    source: Source,
    manner: Manner,
    values: Mapping[str, Any] | None = None,
    is_interpreted: bool = True,
    may_convert: bool = False,
) -> Prepared:
    """Makes a Prepared from a pruned and rewritten GraphDef.

    Args:
        graph_def: GraphDef of the step alone.
        wanted: the fetches, Arguments and names of operations.
        feeds: name of a Placeholder in graph_def -> Argument.
        plan: the precision Plan, or None.
        source: the `Source`, which knows the values of variables.
        manner: as in Prepared.
        values: as in `prepare`.
        is_interpreted: as in Prepared.
        may_convert: whether TensorFlow's converter may take it.
    """
    step = pruning.without_places(graph_def)
    module = _without_reports(step, wanted)
    draws = tuple(packing.draws(module)) if is_interpreted else ()
    state = [*states.of_module(module, values, source), *states.of_draws(draws)]
    state += states.of_random_ops(module) if may_convert else ()
    state.sort(key=lambda variable: variable.name)
    prepared = Prepared(step, tuple(wanted), feeds, tuple(state), plan, manner, is_interpreted, [module], draws)
    if not is_interpreted:
        prepared.graph_def  # noqa: B018  errors of its passes are told here
    return prepared


def _without_reports(graph_def, fetches):
    """The module of a step, without prints and assertions."""
    module = pipeline.module_of(graph_def, pipeline.results_of(map(_name, fetches)))
    host_reports.eliminate(module)
    return module


def _asked_again(names: Iterable[str]) -> list[str]:
    """Those of some names that come for the second time."""
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]


def checked(graph_def: Any, keep: Iterable[str], placeholders: Collection[str], watching: Watching) -> Any:
    """Prunes a GraphDef to what the step needs, and logs what XLA does not check.

    Args:
        graph_def: tf.GraphDef of the step alone; it is not changed.
        keep: names of the nodes that are fetched or run.
        placeholders: names of the nodes that are fed.
        watching: who looks on while passes run.

    Raises:
        ConfigError: a placeholder is neither fed nor a constant.
    """
    kept = pipeline.results_of([*keep, *placeholders])
    module = pipeline.module_of(graph_def, kept)
    graph_def = pipeline.run(pipeline.PRUNE, module, pipeline.Context(), watching)
    module.release()
    _require_fed(graph_def, placeholders)
    unchecked.tell(graph_def)
    return graph_def


def _given(source, feeds, constants):
    """(Arguments of the feeds, dict of a constant's tensor name to its array)."""
    shapes = feeds if isinstance(feeds, dict) else dict.fromkeys(feeds)
    fed = [source.feed(feed, shape) for feed, shape in shapes.items()]
    fixed = [(source.feed(feed, np.shape(value), "constant"), value) for feed, value in constants.items()]
    counts = Counter([feed.name for feed in fed] + [feed.name for feed, _ in fixed])
    twice = ["tensor '%s' is given twice, as a feed or constant" % name for name, count in counts.items() if count > 1]
    if twice:
        raise ConfigError(*twice)
    return fed, {feed.name: feed.array(value, "constant") for feed, value in fixed}


def _require_fed(graph_def, feeds):
    """Raises ConfigError for placeholders that are neither fed nor constants."""
    open_ones = [n.name for n in graph_def.node if n.op in ("Placeholder", "PlaceholderV2") and n.name not in feeds]
    if open_ones:
        text = "placeholder '%s' is needed, and is neither a feed nor a constant"
        raise ConfigError(*(text % name for name in open_ones))


def _name(fetched):
    return fetched if isinstance(fetched, str) else fetched.name
