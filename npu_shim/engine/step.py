"""A session's training step as a program between two runs of the session: cut, rewritten, lowered.

The run's graph is cut (cut.py) and rewritten as the session would rewrite it (rewriting.py). The program's part is
extracted and lowered (xla.step_function). For each set of shapes its HLO goes to the device.
"""

from dataclasses import dataclass, replace
from typing import Any, Dict, FrozenSet, Mapping, Tuple

import tensorflow.compat.v1 as tf

from npu_shim.engine import cut as cutting
from npu_shim.engine import facts
from npu_shim.engine.cut import Place
from npu_shim.export import step as export
from npu_shim.options import recompute
from npu_shim.options.rewriting import rewrite_graph
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import source_of, tensor_of
from npu_shim.session import lines, trace
from npu_shim.session.clusters import pruning
from npu_shim.xla import host_reports, random_ops, step_function, writers

KNOWN = "/known"  # suffix of a feed whose value is part of the program
PRODUCTS = "default"  # float32 products at the default precision of the device's libraries, as in sessions


@dataclass(frozen=True)
class HostRun:
    """The part of a step that the session runs before or after the program.

    Attributes:
        fetches: names of the tensors that are fetched.
        targets: names of the operations that are run for their effect.
        feeds: names of the tensors that are fed in addition to the user's feeds.
        touched, written: names of the variables that it reads or writes, and of those that it writes.
    """

    fetches: Tuple[str, ...]
    targets: Tuple[str, ...]
    feeds: Tuple[str, ...]
    touched: FrozenSet[str]
    written: FrozenSet[str]

    @property
    def is_empty(self):
        """Whether there is nothing to run."""
        return not self.fetches and not self.targets


@dataclass(frozen=True)
class Step:
    """A training step, cut.

    Attributes:
        cut: the `cut.Cut`.
        prepared: the program without shapes, a `step_function.Prepared`.
        feed, read: the session's parts.
        handles: name of a variable of the program -> name of its node in the session's graph.
        own: name -> initial value of the program's variables that the session does not have.
        program_fetches: names of the tensors that the program returns.
        nodes: name -> cut.Node, for all nodes that the run needs.
        constants: names of the tensors that XLA must know when it compiles; the session computes them first.
    """

    cut: Any
    prepared: Any
    feed: HostRun
    read: HostRun
    handles: Mapping[str, str]
    own: Dict[str, Any]
    program_fetches: Tuple[str, ...]
    nodes: Mapping[str, Any]
    constants: Tuple[str, ...] = ()

    @property
    def updated(self):
        """Names of the variables that the program writes."""
        return [each.name for each in self.prepared.state if each.updated]

    @property
    def feeds(self):
        """Names of the tensors that the program is fed, in its order."""
        return [feed.name for feed in self.prepared.feeds.values()]

    def program(self, shapes, constants, platform):
        """Returns (Manifest, bytes of the HLO) for feeds of these shapes.

        Args:
            shapes: in the order of `feeds`.
            constants: dict of the tensors' names of `constants` to their values.
            platform: of the device, "cpu", "gpu", ...

        Raises:
            PlanError or ConfigError: XLA cannot compile the step; `refusals.NotConstant` if it must know a value.
        """
        prepared = replace(self.prepared, on_cpu=platform == "cpu")
        if constants:
            kept = list(map(source_of, [*prepared.places.values(), *random_ops.advances(prepared.graph_def)]))
            computed = {name: value for name, value in constants.items() if name not in self.feeds}
            graph_def = pruning.cut_out(prepared.graph_def, kept, (), computed)[0]
            fed = {place: constants[feed.name] for place, feed in prepared.feeds.items() if feed.name in constants}
            prepared = replace(prepared, graph_def=_with_known_feeds(graph_def, fed))
        made = prepared.for_shapes(shapes)
        module = export.hlo_module(made, PRODUCTS)
        described = export.describe(made, module, kind="hlo", float32_products=PRODUCTS, options={})
        return described, export.without_sources(module)

    def knowing(self, missing):
        """Returns the step with one more constant, None if the session cannot compute that from the step's inputs.

        Args:
            missing: `refusals.NotConstant`.
        """
        nodes = {node.name: node for node in self.prepared.graph_def.node}
        data = [text for text in nodes[missing.node].input if text[0] != "^"] if missing.node in nodes else []
        if missing.number >= len(data):
            return None
        fed = self.prepared.feeds.get(source_of(data[missing.number]))
        tensor = tensor_of(data[missing.number]) if fed is None else fed.name
        if tensor in self.constants or (fed is None and source_of(tensor) not in self.nodes):
            return None
        if fed is not None:
            return replace(self, constants=(*self.constants, tensor))
        needed = facts.needed_by(self.nodes.__getitem__, [source_of(tensor)], self.cut.fed)
        if any(node.essential or node.learned or not node.repeats for node in needed.values()):
            return None
        return replace(self, constants=(*self.constants, tensor))


def _with_known_feeds(graph_def, values):
    """Replaces feeds by constants in a GraphDef, in place, and returns it; values: name of a Placeholder -> value."""
    for node in graph_def.node:
        for number, text in enumerate(node.input):
            if source_of(text) in values and text[0] != "^":
                node.input[number] = source_of(text) + KNOWN
    for name, value in values.items():
        node = graph_def.node.add(name=name + KNOWN, op="Const")
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return graph_def


def make(source, request, nodes, taken, options):
    """Returns the Step of a run.

    Args:
        source: `xla.sources.Source` of the session, with its graph_def.
        request: `requests.Request`.
        nodes: name -> cut.Node, for all nodes that the run needs.
        taken: name of a node -> (variables that it takes, variables that it writes).
        options: the `session_options.SessionOptions` of the session.

    Raises:
        PlanError or ConfigError: why it is not taken.
    """
    user = [source.feed(name) for name in request.feeds]
    fetches = [name for name in dict.fromkeys(request.tensors) if name not in request.feeds]
    cut = cutting.plan(nodes, fetches, request.targets)
    if cut.refusal:
        raise PlanError(cut.refusal)
    _require_shared(source.graph, cut)
    wanted = _program_outputs(source, request, cut, fetches)
    prepared = _prepared(source, request, cut, user, wanted, options)
    handles = {writers.variable_name(n): n.name for n in prepared.graph_def.node if n.op == "VarHandleOp"}
    own = {each.name: random_ops.initial_state() for each in prepared.state if each.name == random_ops.STATE}
    return Step(
        cut, prepared, _feeding_run(cut, fetches, taken, nodes), _reading_run(cut, fetches, taken, nodes),
        {name: node for name, node in handles.items() if name not in own}, own,
        tuple(each.name for each in wanted if not isinstance(each, str)), nodes,
    )  # fmt: skip


def _require_shared(graph, cut):
    """Raises PlanError for a tensor that cannot leave the session or the program."""
    for name in (*cut.fed, *cut.shown, *cut.carried):
        tensor = graph.as_graph_element(name)
        if tensor.dtype in (tf.resource, tf.variant) or not graph.is_fetchable(tensor):
            raise PlanError("tensor '%s' (%s) cannot pass between session and program" % (name, tensor.dtype.name))
    for name in cut.fed:
        if graph.as_graph_element(name).dtype.base_dtype == tf.string:
            raise PlanError("the program would be fed strings, '%s'" % name)


def _program_outputs(source, request, cut, fetches):
    """What the program computes: Arguments of tensors, then names of operations."""
    tensors = [name for name in fetches if cut.place(name) is Place.PROGRAM]
    tensors = list(dict.fromkeys([*tensors, *cut.shown]))
    fetched = [source.fetch(name) for name in tensors]
    return tuple(fetched) + cut.runs[Place.PROGRAM] + tuple(
        name for name in request.targets
        if cut.places.get(name, Place.PROGRAM) is Place.PROGRAM and name not in cut.runs[Place.PROGRAM]
    )  # fmt: skip


def _prepared(source, request, cut, user, wanted, options):
    names = [each if isinstance(each, str) else each.name for each in wanted]
    kept = list(map(source_of, names))
    graph_def, placeholders = pruning.cut_out(source.graph_def, request.nodes, user)
    graph_def, plan = _rewritten(source, graph_def, [*names, *request.tensors, *cut.fed], placeholders, options)
    shared = [source.feed(name) for name in cut.fed]
    graph_def, shared_placeholders = pruning.cut_out(_without_session_parts(graph_def, cut), kept, shared)
    left = {node.name for node in graph_def.node}
    feeds = dict(zip(shared_placeholders, shared))
    feeds.update((name, feed) for name, feed in zip(placeholders, user) if name in left)
    graph_def = step_function.checked(graph_def, kept, list(feeds))
    values = _values_for_unknown_shapes(graph_def, source)
    again = recompute.wanted(options.values), False  # which device it is for is known when it is compiled
    return step_function.lowered(graph_def, wanted, feeds, plan, source, again, values)


def _rewritten(source, graph_def, preserved, placeholders, options):
    """Rewrites the whole run's graph as the session would, before it is cut, so that the same slots are lowered."""
    if options.values.get("use_off_line") is False:
        return graph_def, None
    built = {node.name: node.op for node in source.graph_def.node}
    present = {node.name for node in graph_def.node}
    preserved = [name for name in dict.fromkeys(preserved) if source_of(name) in present]
    done = rewrite_graph(graph_def, placeholders, preserved, options.precision(), "XLA", built)
    lines.say(done, options.precision())
    trace.graph(done.plan, done.seconds)
    return done.graph_def, done.plan


def _without_session_parts(graph_def, cut):
    """Returns a copy of the run's GraphDef: nothing waits for the session's parts, and prints only forward."""
    elsewhere = {name for name, place in cut.places.items() if place is not Place.PROGRAM}
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    for node in made.node:
        kept = [text for text in node.input if text[0] != "^" or source_of(text) not in elsewhere]
        if len(kept) < len(node.input):
            del node.input[:]
            node.input.extend(kept)
        if node.name in cut.runs[Place.READ] and node.op in host_reports.FORWARDING:
            host_reports.silence(node)
    return made


def _values_for_unknown_shapes(graph_def, source):
    """Values of the variables whose static shape is unknown; for the others, zeros that need no memory suffice."""
    open_ones = {}
    for node in graph_def.node:
        if node.op in facts.HANDLES and not tf.TensorShape(node.attr["shape"].shape).is_fully_defined():
            open_ones[writers.variable_name(node)] = node.name
    return source.values_of(open_ones) if open_ones else {}


def _feeding_run(cut, fetches, taken, nodes):
    fetched = [name for name in fetches if cut.place(name) is Place.FEED]
    names = tuple(dict.fromkeys([*fetched, *cut.fed, *cut.carried]))
    return _host_run(names, cut.runs[Place.FEED], (), taken, nodes)


def _reading_run(cut, fetches, taken, nodes):
    fetched = tuple(name for name in fetches if cut.place(name) is Place.READ)
    return _host_run(fetched, cut.runs[Place.READ], (*cut.shown, *cut.carried), taken, nodes)


def _host_run(fetches, targets, feeds, taken, nodes):
    needed = facts.needed_by(nodes.__getitem__, [*map(source_of, fetches), *targets], feeds)
    touched = [taken[name] for name in needed if name in taken]
    return HostRun(
        tuple(fetches), tuple(targets), tuple(feeds),
        frozenset().union(*(names for names, _ in touched)), frozenset().union(*(names for _, names in touched)),
    )  # fmt: skip
