"""A session's training step as a program, or several, between runs of the session: cut, rewritten, lowered.

The run's graph is cut (cut.py) and rewritten as the session would rewrite it (rewriting.py). Each program's part is
extracted (xla.step_function). For each set of shapes its graph goes to the device, which interprets it by JAX.
"""

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, FrozenSet, Mapping, NamedTuple, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.engine import pipeline
from npu_shim.engine.partition import cut as cutting
from npu_shim.engine.partition import facts, fallback
from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.partition.cut import Place
from npu_shim.engine.runtime import sharing
from npu_shim.engine.runtime.access import Access
from npu_shim.export import traced
from npu_shim.options import passes, words
from npu_shim.options.rewriting import rewrite_graph
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session import lines
from npu_shim.session.observers import trace
from npu_shim.step import counters
from npu_shim.step.packing import AGAIN
from npu_shim.step.rules.table import IDS
from npu_shim.xla import step_function
from npu_shim.xla.passes import pruning, writers

VALUE, COUNTER, SEGMENTS = "value", "counter", "segments"  # ways in which the session gives constants
PASSED = "passed"  # kind of a tensor that stays on the device, see `pjrt.manifest.Tensor`


@dataclass(frozen=True)
class HostRun:
    """The part of a step that the session runs before or after the program.

    Attributes:
        fetches: names of the tensors that are fetched.
        targets: names of the operations that are run for their effect.
        feeds: names of the tensors that are fed in addition to the user's feeds.
        access: the variables that it reads and writes.
        again: name of a tensor that is fed, too -> the one of `feeds` whose value it is given.
    """

    fetches: Tuple[str, ...]
    targets: Tuple[str, ...]
    feeds: Tuple[str, ...]
    access: Access
    again: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self):
        """Whether there is nothing to run."""
        return not self.fetches and not self.targets


class Constant(NamedTuple):
    """A value that is part of a program.

    Attributes:
        name: what has it, as the interpreter asks for it: a tensor; or a node that `lowering.lowered` is told a number
            of, a Switch by which a counter leaves its loop, or a sum over segments.
        source: name of the tensor from which the session takes it.
        way: how: VALUE, COUNTER or SEGMENTS, of which it is the last one's number plus 1.
    """

    name: str
    source: str
    way: str = VALUE

    def of(self, value):
        """The constant, np.ndarray, given the source's value."""
        value = np.asarray(value)
        return value[-1:].sum() + bool(value.size) if self.way == SEGMENTS else value

    def told(self, value):
        """The same as `lowering.lowered` takes it."""
        return [value.dtype.name, value.tolist()] if self.way == VALUE else int(value)


@dataclass(frozen=True)
class Part:
    """One program of a step, and what the session runs behind it.

    Attributes:
        program: its `cut.Program`.
        prepared: the program without shapes, a `step_function.Prepared`.
        then: the session's part.
        constants: Constants, which the session computes first.
        meeting: the `cluster.Meeting` of ranks that run it together, None for a program of this process alone.
        bundles: the `sparse_feeds.Bundles` that are padded, () for none; None where nobody has looked for any.
    """

    program: Any
    prepared: Any
    then: HostRun
    constants: Tuple[Constant, ...] = ()
    meeting: Any = None
    bundles: Any = None

    @property
    def feeds(self):
        """Names of the tensors that the program takes, in its order."""
        return [feed.name for feed in self.prepared.feeds.values()]

    def compiled(self, shapes, constants, device, cache="", bundles=()):
        """Returns (Manifest, what the device loads) for feeds of these shapes.

        Args:
            shapes: in the order of `feeds`.
            bundles: the `sparse_feeds.Bundles` that are padded.
            constants: dict of `constants` to np.ndarray.
            device: of the engine.
            cache: path of the folder for compiled programs, "" for none.

        Raises:
            traced.Refused: the interpreter does not take the step, or must know a value.
            ConfigError: the graph does not take feeds of these shapes.
        """
        known = {constant.name: value for constant, value in constants.items() if constant.name in self.feeds}
        told = {constant.name: constant.told(value) for constant, value in constants.items()
                if constant.name not in known}  # fmt: skip
        described, step = traced.of(self.prepared, shapes, known, device, self.meeting, told, cache, bundles)
        results = {tensor.name for tensor in described.results}
        open_ones = [name for name in self.program.passed if counters.ROWS + name in results]
        if open_ones:
            raise traced.Refused(
                "'%s' stays on the device, and has a number of rows that depends on the data" % open_ones[0]
            )
        return self._with_passed(described), step.content

    def fed(self, refused):
        """Constants for the feeds of whole numbers that a `traced.Refused` asks for, and whose values are none yet."""
        whole = {feed.name for feed in self.prepared.feeds.values() if feed.dtype.is_integer or feed.dtype.is_bool}
        wanted = [Constant(name, name) for name in refused.feeds if name in whole.difference(self.program.taken)]
        return [constant for constant in wanted if constant not in self.constants]

    def _with_passed(self, described):
        """The Manifest, where what stays on the device is neither fed nor fetched."""
        last = sum(not isinstance(fetch, str) for fetch in self.prepared.fetches)
        passed = range(last - len(self.program.passed), last)  # they are the last of what is fetched
        rows = [
            replace(t, kind=PASSED, name=t.name.partition(AGAIN)[0]) if n in passed else t
            for n, t in enumerate(described.results)
        ]
        arguments = [replace(t, kind=PASSED) if t.name in self.program.taken else t for t in described.arguments]
        return replace(described, arguments=tuple(arguments), results=tuple(rows))


@dataclass(frozen=True)
class Step:
    """A training step, cut.

    Attributes:
        cut: the `cut.Cut`.
        feed: the session's part in front of the programs.
        parts: the programs, each with the session's part behind it.
        handles: name of a variable of the programs -> name of its node in the session's graph.
        draws: name of the state of random ops -> (these as `step.packing.draws` gives them, its initial value).
        nodes: name -> nodes.Node, for all nodes that the run needs.
        waiting: for each program tensor -> value of the constants that wait for the session's parts in front of it.
        blocking: names of the nodes that may wait for what happens outside of the run.
        graph: the session's tf.Graph.
        earlier: the Step whose program this one runs too, None for one with programs of its own.
    """

    cut: Any
    feed: HostRun
    parts: Tuple[Part, ...]
    handles: Mapping[str, str]
    draws: Mapping[str, Any]
    nodes: Mapping[str, Any]
    waiting: Tuple[Mapping[str, Any], ...]
    blocking: FrozenSet[str]
    graph: Any
    earlier: Any = None

    @property
    def updated(self):
        """Names of the session's variables that the programs write."""
        written = {variable.name for part in self.parts for variable in part.prepared.state if variable.updated}
        return sorted(written - self.draws.keys())

    @property
    def shapes(self):
        """Name -> shape (tuple) of the programs' variables."""
        return {variable.name: variable.shape for part in self.parts for variable in part.prepared.state}

    def fallback(self, number, given, tensors, targets):
        """What the session must run if program `number` cannot be compiled, without running anything again.

        Args:
            number: of the program, in front of which the session's parts have run.
            given: dict of tensor name to value: the user's feeds and what these parts gave.
            tensors: names of what is to be fetched.
            targets: names of the operations that are to be run.

        Returns:
            (tensors that are not given, names of operations), feeds
        """
        done = {*self.feed.targets, *(name for part in self.parts[:number] for name in part.then.targets)}
        left = [name for name in fallback.ungrouped(self.nodes, targets) if name not in done]
        return ([name for name in tensors if name not in given], left), {**given, **self.waiting[number]}

    def fallback_blocks(self, number):
        """Whether what `fallback` leaves to the session may wait for what happens outside of the run."""
        done = {name for part in self.parts[:number] for name in part.program.hosts}
        return any(self.cut.places.get(name) is not Place.FEED and name not in done for name in self.blocking)

    def asserts_hold(self, given):
        """Whether what is asserted of results, and known before the first program, is true."""
        return all(np.all(given[condition]) for condition in self.cut.conditions.values())

    def padding(self, bundles, number):
        """Returns the step with these `sparse_feeds.Bundles` of a part."""
        more = replace(self.parts[number], bundles=bundles)
        return replace(self, parts=(*self.parts[:number], more, *self.parts[number + 1 :]))

    def knowing(self, refused, number):
        """Returns the step with more constants, None if the session cannot give one from the step's inputs.

        A tensor that the session computes of what is fed is preferred to all of that: a step is compiled for each
        longest length, and not for all lengths of a batch.

        Args:
            refused: `traced.Refused`.
            number: of the part that needs it.
        """
        part, depths = self.parts[number], walks.depths(self.nodes)
        asked = [self._computed(name, part, depths) for name in refused.asked]
        new = [constant for constant in asked if constant and constant not in part.constants]
        counting = [constant for constant in new if constant.way == COUNTER]  # one of a loop's is enough
        wanted = counting[:1] + [constant for constant in new if constant.way != COUNTER] or part.fed(refused)
        more = replace(part, constants=(*part.constants, *wanted))
        return replace(self, parts=(*self.parts[:number], more, *self.parts[number + 1 :])) if wanted else None

    def _computed(self, name, part, depths):
        """The Constant for what a `traced.Refused` asks for; None where the session cannot compute it."""
        if source_of(name) not in self.nodes:
            return None
        if ":" in name:
            return self._outside(Constant(name, name), part, depths)
        operation = self.graph.get_operation_by_name(name)
        if operation.type in IDS:
            return self._outside(Constant(name, operation.inputs[IDS[operation.type]].name, SEGMENTS), part, depths)
        leaving = [taker.outputs[0].name for taker in operation.outputs[0].consumers() if taker.type == "Exit"]
        is_given = leaving and depths[name] == 1 and self._gives(name, part)
        return Constant(name, leaving[0], COUNTER) if is_given and self._is_number(leaving[0]) else None

    def _outside(self, constant, part, depths):
        """A Constant that a program is fed, or that the session computes outside of loops; None for another one."""
        name = source_of(constant.source)
        is_given = self._gives(name, part) and not depths[name] and self._is_number(constant.source)
        is_fed = constant.source in part.feeds and constant.source not in part.program.taken
        return constant if is_given or is_fed else None

    def _gives(self, name, part):
        """Whether the session can compute a node from a program's inputs, as the program would.

        What is asserted of them on the way ends the run as it would in the step.
        """
        if name not in self.nodes:
            return False
        needed = facts.needed_by(self.nodes.__getitem__, [name], part.program.fed)
        may_repeat = (node.repeats or node.asserts for node in needed.values())
        return all(may_repeat) and not any(node.essential or node.learned for node in needed.values())

    def _is_number(self, name):
        tensor = self.graph.as_graph_element(name)
        dtype = tensor.dtype.base_dtype
        return self.graph.is_fetchable(tensor) and (dtype.is_integer or dtype.is_bool)


def make(source, request, nodes, taken, options, steps=(), meeting=None):
    """Returns the Step of a run.

    Args:
        source: `xla.sources.Source` of the session, with its graph_def.
        request: `requests.Request`.
        nodes: name -> cut.Node, for all nodes that the run needs.
        taken: name of a node -> (variables that it takes, variables that it writes).
        options: the `session_options.SessionOptions` of the session.
        steps: earlier Steps with the same feeds, whose programs may serve.
        meeting: the `cluster.Meeting` of ranks that run it together, None where this process runs it alone.

    Raises:
        PlanError or ConfigError: why it is not taken.
    """
    user = [source.feed(name) for name in request.feeds]
    fetches = [name for name in dict.fromkeys(request.tensors) if name not in request.feeds]
    cut = cutting.plan(nodes, fetches, request.targets)
    if cut.refusal:
        raise PlanError(cut.refusal)
    if meeting is not None and len(cut.programs) > 1:
        raise PlanError("the session must run a part in the middle of it")
    _require_shared(source.graph, cut)
    wanted = [_outputs(source, request, cut, fetches, number) for number in range(len(cut.programs))]
    names = [value if isinstance(value, str) else value.name for outputs in wanted for value in outputs]
    earlier = sharing.step_for(
        cut, set(names) - {name for program in cut.programs for name in program.runs}, nodes, steps
    )
    compiled = earlier.parts if earlier else _programs(source, request, cut, wanted, names, user, options)
    parts = tuple(
        replace(part, meeting=meeting, then=_host_run(
            [name for name in fetches if source_of(name) in program.hosts or _is_read(cut, program, name)]
            + _given(cut, program), _runnable(source.graph, program.effects), program.needs, taken, nodes,
            program.again,
        ))
        for part, program in zip(compiled, cut.programs)
    )  # fmt: skip
    state = [program for part in parts for program in part.prepared.state]
    first = {variable.name: variable.value for variable in state if variable.name.startswith(counters.STATE)}
    drawing = {counters.state_name(part.prepared.draws): part.prepared.draws for part in parts}
    draws = {name: (drawing[name], value) for name, value in first.items()}
    handles = {variable.name: variable.node for variable in state if variable.node}
    known = (*fetches, *cut.fed, *cut.carried, *cut.conditions.values())
    fed = [name for name in known if cut.place(name) is Place.FEED]
    feed = _host_run(fed, cut.feeding, (), taken, nodes)
    waiting = tuple(_constants(source.graph, names) for names in cut.waiting)
    return Step(cut, feed, parts, handles, draws, nodes, waiting, facts.blocking(nodes, taken), source.graph, earlier)


def _programs(source, request, cut, wanted, names, user, options):
    """Returns a Part for each program of a cut, prepared, and without the session's part behind it."""
    graph_def, placeholders = pruning.cut_out(source.graph_def, request.nodes, user)
    graph_def, plan = _rewritten(source, graph_def, [*names, *request.tensors, *cut.fed], placeholders, options)
    rewritten = graph_def, plan, dict(zip(placeholders, user))
    nothing = HostRun((), (), (), Access())
    return [
        Part(program, _prepared(source, cut, program, outputs, rewritten, options), nothing)
        for program, outputs in zip(cut.programs, wanted)
    ]


def _runnable(graph, names):
    """Names of operations; for a tf.cond of version 2, which no session runs by name, that of what takes its result.

    Raises:
        PlanError: nothing does.
    """
    runnable = []
    for name in names:
        operation = graph.get_operation_by_name(name)
        takers = [taker for output in operation.outputs for taker in output.consumers()]
        names = [one.name for one in (operation, *takers) if graph.is_fetchable(one)]
        if not names:
            raise PlanError(
                "node '%s' (%s) must run in the session, which cannot run it alone" % (name, operation.type)
            )
        runnable.append(names[0])
    return runnable


def _is_read(cut, program, tensor):
    return program is cut.programs[-1] and cut.place(tensor) is Place.READ


def _given(cut, program):
    """The tensors that the host ops behind a program give to later parts."""
    return [name for name in (*cut.fed, *cut.carried) if source_of(name) in program.hosts]


def _constants(graph, names):
    """Tensor -> value of the constants of these names."""
    values = (graph.get_operation_by_name(name).get_attr("value") for name in names)
    return {name + ":0": tf.make_ndarray(value) for name, value in zip(names, values)}


def _require_shared(graph, cut):
    """Raises PlanError for a tensor that cannot leave the session or the program."""
    for name in (*cut.fed, *cut.shown, *cut.carried, *cut.conditions.values()):
        tensor = graph.as_graph_element(name)
        if tensor.dtype in (tf.resource, tf.variant) or not graph.is_fetchable(tensor):
            raise PlanError("tensor '%s' (%s) cannot pass between session and program" % (name, tensor.dtype.name))
    for name in cut.fed:
        if graph.as_graph_element(name).dtype.base_dtype == tf.string:
            raise PlanError("the program would be fed strings, '%s'" % name)


def _outputs(source, request, cut, fetches, number):
    """What a program computes: Arguments of tensors, of those that it passes on, and names of operations."""
    program = cut.programs[number]
    tensors = [name for name in fetches if cut.place(name) is Place.PROGRAM and cut.stage(name) == number]
    tensors = [*dict.fromkeys([*tensors, *program.shown]), *program.passed]
    return tuple(source.fetch(name) for name in tensors) + program.runs


def _prepared(source, cut, program, wanted, rewritten, options):
    """The Prepared of one program of a rewritten run."""
    graph_def, plan, user = rewritten
    kept = [source_of(tensor if isinstance(tensor, str) else tensor.name) for tensor in wanted]
    shared = [source.feed(name) for name in (*program.fed, *program.taken)]
    division, watching = pipeline.Division(cut, program, kept, shared), passes.wanted(options.values)
    graph_def = pipeline.program_of(graph_def, division, watching)
    left = {node.name for node in graph_def.node}
    feeds = dict(zip(division.placeholders, shared))
    feeds.update((name, feed) for name, feed in user.items() if name in left)
    manner = step_function.Manner(words.RECOMPUTE.of(options.values), watching, words.ATTENTION.of(options.values))
    graph_def = step_function.checked(graph_def, kept, list(feeds), manner.watching, True)
    values = _values_for_unknown_shapes(graph_def, source)
    return step_function.of_step(graph_def, wanted, feeds, plan, source, manner, values)


def _rewritten(source, graph_def, preserved, placeholders, options):
    """Rewrites the whole run's graph as the session would, before it is cut, so that the same slots are lowered."""
    if options.values.get("use_off_line") is False:
        return graph_def, None
    built = {node.name: node.op for node in source.graph_def.node}
    present = {node.name for node in graph_def.node}
    preserved = [name for name in dict.fromkeys(preserved) if source_of(name) in present]
    watching = passes.wanted(options.values)
    done = rewrite_graph(graph_def, placeholders, preserved, options.precision(), "XLA", built, watching)
    lines.say(done, options.precision())
    trace.graph(done.plan, done.seconds)
    return done.graph_def, done.plan


def _values_for_unknown_shapes(graph_def, source):
    """Values of the variables whose static shape is unknown; for the others, zeros that need no memory suffice."""
    open_ones = {}
    for node in graph_def.node:
        if node.op in facts.HANDLES and not tf.TensorShape(node.attr["shape"].shape).is_fully_defined():
            open_ones[writers.variable_name(node)] = node.name
    return source.values_of(open_ones) if open_ones else {}


def _host_run(fetches, targets, feeds, taken, nodes, again=MappingProxyType({})):
    fetches = dict.fromkeys(fetches)
    needed = facts.needed_by(nodes.__getitem__, [*map(source_of, fetches), *targets], [*feeds, *again])
    return HostRun(tuple(fetches), tuple(targets), tuple(feeds), facts.access_of(needed, taken), again)
