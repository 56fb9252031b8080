"""A training step of a TensorFlow 1 graph, prepared for the interpreter of JAX: cut out, rewritten, with named state.

    Graph, Session or GraphDef -> cut out (passes/pruning.py) -> pruned (pipeline.py) -> the precision plan
    (rewriting.py) -> Prepared -> packed (step/packing.py)

The engine, compile_step and export run it. The step has the graph's own control edges and no automatic ones.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.options.passes import Watching
from npu_shim.rewriter.collector import without_collector
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.rewriter.ir.attributes import Shape
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.planner.decisions import Plan
from npu_shim.session.clusters import unchecked
from npu_shim.step import packing
from npu_shim.xla import pipeline, rewriting, states
from npu_shim.xla.passes import host_reports, pruning, quick_tests, shared_constants, writers
from npu_shim.xla.sources import Argument, Source
from npu_shim.xla.states import StateVariable


@dataclass(frozen=True)
class Manner:
    """How a step is prepared, as its options say.

    Attributes:
        recompute: one of `options.words.RECOMPUTE`.
        watching: who looks on while passes run.
        attention: one of `options.words.ATTENTION`.
        has_kernels: whether what runs it has kernels for attention.
    """

    recompute: str
    watching: Watching
    attention: str = "auto"
    has_kernels: bool = False


@dataclass(frozen=True)
class Prepared:
    """A step before its feeds have full shapes.

    Attributes:
        graph_def: its tf.GraphDef: pruned, rewritten, without devices.
        fetches: one for each fetch: an Argument, or the name of an operation, which has no value.
        feeds: name of a Placeholder in graph_def -> Argument, perhaps with open dimensions; in the order of arguments.
        state: every variable that the step reads or writes, by name, and the state of its random ops.
        plan: the precision Plan, None if no precision option was given.
        manner: how it is prepared.
        draws: its random ops that have a state, as `step.packing.draws` gives them.
        modules: the module that `module` gives, until it is taken.
        contents: what `packed` has written.
    """

    graph_def: Any
    fetches: tuple[Any, ...]
    feeds: Mapping[str, Argument]
    state: tuple[StateVariable, ...]
    plan: Plan | None
    manner: Manner
    draws: tuple[Any, ...] = ()
    modules: list[Module] = field(default_factory=list, repr=False, compare=False)
    contents: list[bytes] = field(default_factory=list, repr=False, compare=False)

    @property
    def packed(self) -> bytes:
        """graph_def as `step.packing` writes it; errors as of `as_packed`."""
        if not self.contents:
            module = self.module()
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

    def module(self) -> Module:
        """A module of graph_def, without prints, assertions and copies of constants."""
        with contextlib.suppress(IndexError):
            return self.modules.pop()
        return _module_of(self.graph_def, self.fetches, self.feeds)

    def on(self, platform: str) -> Prepared:
        """The same as a program for a platform, as JAX names it: "cpu", "gpu"."""
        return replace(self, manner=replace(self.manner, has_kernels=platform != "cpu"))

    @contextlib.contextmanager
    def sized(self, module: Module, shapes: Sequence[Any]) -> Iterator[None]:
        """Context for a module whose feeds it gives these shapes.

        Raises:
            ConfigError: a shape does not fit the graph's, or is not full.
        """
        feeds = self._sized_feeds(shapes)
        with _shapes_that_fit(feeds):
            _set_shapes(module.graph, feeds)
            yield

    def _sized_feeds(self, shapes: Sequence[Any]) -> dict[str, Argument]:
        shapes = shapes or [None] * len(self.feeds)
        return {name: feed.with_shape(shape) for (name, feed), shape in zip(self.feeds.items(), shapes)}


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
    """Makes a Prepared.

    Args:
        source: the `Source`.
        fetches: list of tensors, operations or their names, as for sess.run; a variable's name gives its value after
            the step.
        feeds: dict of tensors or their names to their shapes; or a list of them, whose shapes may be open.
        constants: dict of tensors or their names to values that become part of the program; for what must be known when
            it is compiled, such as the lengths of a tf.sequence_mask without maxlen.
        values: variable name -> np.ndarray, initial values; None takes those of a Session. A variable without a
            value is zero.
        device: "CPU" or "GPU", the target; a step for a CPU computes low precision with float32's kernels.
        **options: as for `npu_shim.rewrite`. A Session brings its own (those of its NpuOptimizer), over which these
            win; a Session without NpuOptimizer and a call without options is not rewritten.

    Raises:
        ConfigError: a fetch, feed or option is invalid.
        PlanError: the graph cannot be rewritten.
    """
    wanted = tuple(source.fetch(fetch) for fetch in (fetches if isinstance(fetches, (list, tuple)) else [fetches]))
    if not wanted:
        raise ConfigError("fetches is %r, expected at least one tensor or operation" % (fetches,))
    if values is not None and not isinstance(values, Mapping):
        raise ConfigError("values is %s, expected a dict of names to arrays" % type(values).__name__)
    _require_numbers("fetch", wanted, "fetch it in a session")
    fed, fixed = _given(source, feeds, constants or {})
    _require_numbers("feed", fed, "feed what a session computes of it")
    given = {feed.name for feed in fed}
    names = [name for name in map(_name, wanted) if name not in given]
    nodes = [name.partition(":")[0] for name in names]
    graph_def, placeholders = pruning.cut_out(source.graph_def, nodes, fed, fixed)
    asked = rewriting.options_of(source, options)
    graph_def = writers.clear_containers(graph_def, source.graph_def)
    graph_def = checked(graph_def, nodes, placeholders, asked.watching)
    graph_def, plan = rewriting.rewritten(source, graph_def, names, placeholders, asked.values, device)
    manner = Manner(asked.recompute, asked.watching, asked.attention)
    return of_step(graph_def, wanted, dict(zip(placeholders, fed)), plan, source, manner, values)


def of_step(
    graph_def: Any,
    wanted: Sequence[Any],
    feeds: Mapping[str, Argument],
    plan: Plan | None,
    source: Source,
    manner: Manner,
    values: Mapping[str, Any] | None = None,
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
    """
    graph_def = pruning.without_places(graph_def)
    module = _module_of(graph_def, wanted, feeds)
    draws = tuple(packing.draws(module))
    state = (*states.of_module(module, values, source), *states.of_draws(draws))
    return Prepared(graph_def, tuple(wanted), feeds, state, plan, manner, draws, [module])


def _module_of(graph_def, fetches, feeds):
    """The module of a step, without what sessions alone need and copies of constants; what is fed is fetched as fed."""
    results = pipeline.results_of(map(_name, fetches))
    results.update((feed.name, name + ":0") for name, feed in feeds.items() if feed.name in results)
    module = pipeline.module_of(graph_def, results)
    host_reports.eliminate(module)
    quick_tests.fail(module)
    shared_constants.share(module)
    return module


def _asked_again(names: Iterable[str]) -> list[str]:
    """Those of some names that come for the second time."""
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]


def checked(
    graph_def: Any, keep: Iterable[str], placeholders: Collection[str], watching: Watching, has_session: bool = False
) -> Any:
    """Prunes a GraphDef to what the step needs, and logs what XLA does not check.

    Args:
        graph_def: tf.GraphDef of the step alone; it is not changed.
        keep: names of the nodes that are fetched or run.
        placeholders: names of the nodes that are fed.
        watching: who looks on while passes run.
        has_session: as `watches` of `unchecked.tell`.

    Raises:
        ConfigError: a placeholder is neither fed nor a constant.
    """
    kept = pipeline.results_of([*keep, *placeholders])
    module = pipeline.module_of(graph_def, kept)
    graph_def = pipeline.run(pipeline.PRUNE, module, watching)
    module.release()
    _require_fed(graph_def, placeholders)
    unchecked.tell(graph_def, has_session)
    return graph_def


def _require_numbers(kind, arguments, instead):
    """Raises ConfigError for fetches or feeds that are text."""
    texts = [argument.name for argument in arguments if isinstance(argument, Argument) and argument.dtype == tf.string]
    if texts:
        raise ConfigError("%s '%s' is text, with which XLA does not compute; %s" % (kind, texts[0], instead))


def _given(source, feeds, constants):
    """(Arguments of the feeds, dict of a constant's tensor name to its array)."""
    if isinstance(feeds, (str, tf.Tensor)):
        raise ConfigError("feeds is %r, expected a list of tensors or their names, or a dict of them to shapes" % feeds)
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
