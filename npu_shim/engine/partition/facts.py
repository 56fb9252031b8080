"""Describes a graph's nodes for the cut: which the program can hold, which write variables, which compute.

A program can hold what the interpreter of JAX has a rule for (`step.op_names`); dtypes and values that a rule does not
take are told when the program is made.
"""

import collections

import tensorflow.compat.v1 as tf

from npu_shim.engine.partition.host import HOST, MEETS
from npu_shim.engine.partition.nodes import Node
from npu_shim.engine.runtime import access
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.analysis import writes
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of, tensor_of
from npu_shim.step import op_names
from npu_shim.xla.passes import host_reports, writers

STRING, RESOURCE = tf.string.as_datatype_enum, tf.resource.as_datatype_enum
FLOATS = frozenset(dtype.as_datatype_enum for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64))
PRODUCTS = ("MatMul", "Conv2D", "Conv3D", "DepthwiseConv2d", "Einsum", "LSTM", "GRU", "RNN")  # parts of op types
MOVING = frozenset(["Identity", "Const", "Reshape", "Cast", "ReadVariableOp", "Switch", "Merge", "Enter", "Exit",
                    "NextIteration", "Pack", "Unpack", "ConcatV2", "Transpose", "ExpandDims", "Squeeze"])  # fmt: skip
HANDLES = writes.REFERENCES | {"VarHandleOp"}
ASSERT, CONDITIONALS = "Assert", ("If", "StatelessIf")
OF_ASSERTIONS = frozenset([ASSERT, "Const", "Identity", "NoOp"])
# Candidate samplers run in the session, and so does what makes a tensor of fixed size of the labels that they have hit:
# else the program would be compiled for every number of hits
HITS, MADE_DENSE = "ComputeAccidentalHits", "SparseToDense"
OF_HITS = ("Cast", "ConcatV2", "ExpandDims", "Pack", "Reshape")
MEETING = frozenset(op for op, why in HOST.items() if why == MEETS)  # what ranks exchange
# Op -> why the session must run it, although there is a rule for it
OTHERWISE = {
    **dict.fromkeys(
        ["CountUpTo", "ResourceCountUpTo", *host_reports.CHECKS],
        "it ends the training by an error, which a program does not raise",
    ),
}
ASKS_ONLY = frozenset([*HANDLES, *writes.ASKS, "VarIsInitializedOp", "VariableShape", "Shape", "Switch", "RefSwitch"])
# beginnings of the types of stateful ops that wait for nothing outside of their run
NEVER_WAITS = ("TensorArray", "Stack", "Save", "Restore", *host_reports.SILENT, *host_reports.FORWARDING)
PASSES_ON = writes.PASSES_ON | writes.REFERS
READING = writes.READS - ASKS_ONLY - {"VarIsInitializedOp"}


def nodes_of(graph_def, fetches, feeds=(), meets=False):
    """Returns name -> cut.Node for the nodes of a graph that a run needs.

    Args:
        graph_def: tf.compat.v1.GraphDef.
        fetches: names of the nodes that are fetched or run.
        feeds: names of the tensors that are fed.
        meets: as of `of`.
    """
    needed = needed_by({node.name: node for node in graph_def.node}.__getitem__, fetches, feeds)
    bodies = {function.signature.name: function for function in graph_def.library.function}
    return of(needed, bodies, variables_touched(needed, bodies), feeds, meets)


def of(needed, bodies, touched, feeds=(), meets=False):
    """Returns name -> cut.Node.

    Args:
        needed: name -> NodeDef, all that a run needs.
        bodies: name -> FunctionDef of the graph's library.
        touched: what `variables_touched` returned.
        feeds: names of the tensors that are fed.
        meets: whether ranks may meet inside of a program.
    """
    return _Facts(needed, bodies, frozenset(feeds), meets).nodes(touched)


def needed_by(node_of, fetches, feeds):
    """Returns name -> NodeDef (or Node) for the nodes that a run needs.

    Args:
        node_of: function of a node's name that returns its NodeDef or Node.
        fetches: names of nodes.
        feeds: names of tensors ("x:0") that need nothing.
    """
    fed, needed, pending = frozenset(feeds), {}, list(fetches)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed[name] = node_of(name)
            inputs = needed[name].inputs if isinstance(needed[name], Node) else needed[name].input
            pending += [source_of(text) for text in unfed(inputs, fed)]
    return needed


def unfed(inputs, feeds):
    """The inputs of a node that are not fed."""
    return tuple(text for text in inputs if text[0] == "^" or tensor_of(text) not in feeds)


def variables_touched(nodes, bodies):
    """Returns name of a node -> (variables that it takes, variables that it writes to).

    Variables are named as by `writers.variable_name`. A variable that may be written counts as written.

    Args:
        nodes: name -> NodeDef, all that a run needs.
        bodies: name -> FunctionDef of the graph's library.
    """
    return _Variables(nodes, bodies).touched()


def local_variables(graph):
    """Returns the names, as by `writers.variable_name`, of a tf.Graph's variables that are local and nothing else."""
    local, *others = (
        {writers.variable_name(variable.op.node_def) for variable in _variables(graph, key)}
        for key in (tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES)
    )
    return local.difference(*others)


def initializers(graph):
    """Returns the names of the nodes that give a tf.Graph's variables their initial values, whatever they compute."""
    held = (variable for key in graph.get_all_collection_keys() for variable in _variables(graph, key))
    starts = (variable.initializer for variable in held)
    return {start.name for start in starts if isinstance(start, tf.Operation)}


def _variables(graph, key):
    """Yields the variables of a collection; of one that a tf.distribute strategy mirrors, each of its copies."""
    for variable in graph.get_collection(key):
        if tf_internals.is_variable(variable):
            yield from getattr(variable, "values", (variable,))


def access_of(nodes, taken):
    """Returns the `access.Access` of a run.

    Args:
        nodes: name -> NodeDef or Node, all that the run needs.
        taken: what `variables_touched` returned, for these nodes and perhaps others.
    """
    light = {
        name: node if isinstance(node, Node) else Node(name, node.op, tuple(node.input)) for name, node in nodes.items()
    }
    return access.of(light, taken, blocking(light, taken))


def blocking(nodes, taken):
    """Returns the names of the Nodes that may wait for what happens outside of their run: for scripts, queues, ..."""
    ops = tf_internals.op_defs()
    return frozenset(name for name, node in nodes.items() if _may_wait(node.op, ops.get(node.op), name in taken))


def _may_wait(op, definition, is_of_variable):
    if definition is None:  # a call by the function's name
        return True
    if any(attr.type in ("func", "list(func)") for attr in definition.attr):
        return definition.is_stateful and not _makes_handles(definition)
    reads_or_writes = is_of_variable and ("Variable" in op or op.startswith("Resource"))  # others take the value only
    if reads_or_writes or op.startswith(NEVER_WAITS) or any(attr.name == "seed" for attr in definition.attr):
        return False
    return "PyFunc" in op or (definition.is_stateful and not _makes_handles(definition))


def _makes_handles(definition):
    """Whether an op of this definition does nothing but return handles of resources."""
    results = definition.output_arg
    return (
        bool(results)
        and not definition.input_arg
        and all(result.type == RESOURCE or (result.type == STRING and result.is_ref) for result in results)
    )


class _Variables:
    def __init__(self, nodes, bodies):
        self._nodes, self._bodies, self._ops = nodes, bodies, tf_internals.op_defs()
        self._origins = {name: {writers.variable_name(node)} for name, node in nodes.items() if node.op in HANDLES}

    def touched(self):
        self._propagate()
        touched = {}
        for node in self._nodes.values():
            taken = self._origins_of(node, [text for text in node.input if text[0] != "^"])
            if taken or node.op in HANDLES:
                touched[node.name] = frozenset(taken or self._origins[node.name]), frozenset(self._written(node))
        return touched

    def _propagate(self):
        changed = True
        while changed:  # nodes may stand in any order
            changed = False
            for node in self._nodes.values():
                passed = self._origins_of(node, self._passed_on(node))
                if passed - self._origins.get(node.name, set()):
                    self._origins.setdefault(node.name, set()).update(passed)
                    changed = True

    def _passed_on(self, node):
        """The inputs whose variable a node's result is or may be."""
        data = [text for text in node.input if text[0] != "^"]
        if node.op in PASSES_ON:
            return data
        definition = self._ops.get(node.op)
        if definition is not None and any(argument.is_ref for argument in definition.output_arg):
            return data[:1]  # what an assignment returns
        return ()

    def _origins_of(self, node, texts):
        return set().union(*(self._origins.get(source_of(text), ()) for text in texts)) if texts else set()

    def _written(self, node):
        if node.op in writes.ASKS or node.op in PASSES_ON or node.op in HANDLES:
            return ()
        definition = self._ops.get(node.op)
        data = [text for text in node.input if text[0] != "^"]
        if definition is not None and any(argument.is_ref for argument in definition.input_arg):
            taken = zip(arguments.of_each(definition.input_arg, node), data)
            return self._origins_of(node, [text for argument, text in taken if argument.is_ref])
        handles = {source_of(text) for text in data if self._is_handle(text)}
        return writers.written_by([node], {n: self._origins[n] for n in handles if n in self._origins}, self._bodies)

    def _is_handle(self, text):
        """Whether a tensor that comes from a variable is its handle, not its value."""
        node = self._nodes.get(source_of(text))
        if node is None:  # fed
            return False
        if node.op == "VarHandleOp":
            return True
        types = [node.attr[name] for name in ("T", "dtype") if name in node.attr]
        return not types or any(attr.type == RESOURCE for attr in types)


class _Facts:
    """The nodes of one run, with what is asked of the tables once."""

    def __init__(self, needed, bodies, feeds, meets):
        self._needed, self._bodies, self._feeds = needed, bodies, feeds
        self._inside = MEETING if meets else ()
        self._ops = tf_internals.op_defs()
        self._body_reasons, self._of_bodies = {}, {}

    def nodes(self, touched):
        hits = dict.fromkeys(self._hits_made_dense(), "how many labels were hit is data")
        nodes = self._needed.items()
        return {name: self._node(node, *touched.get(name, ((), ())), hits.get(name)) for name, node in nodes}

    def _hits_made_dense(self):
        """Names of the nodes from the labels that a candidate sampler has hit to a tensor of fixed size."""
        consumers = collections.defaultdict(list)
        for node in self._needed.values():
            for text in arguments.data(node):
                consumers[source_of(text)].append(node)
        dense, waiting = set(), [node.name for node in self._needed.values() if node.op == HITS]
        while waiting:
            for node in consumers[waiting.pop()]:
                if node.name not in dense and node.op in (*OF_HITS, MADE_DENSE):
                    dense.add(node.name)
                    waiting += [node.name] if node.op in OF_HITS else []
        return dense

    def _node(self, node, taken, written, sized_by_data):
        report = node.op in host_reports.SILENT + host_reports.FORWARDING
        return Node(
            node.name, node.op, unfed(node.input, self._feeds),
            host=None if node.op in self._inside else self._why_host(node) or sized_by_data,
            writes=frozenset(written), variable=bool(taken),
            learned=bool(taken) and node.op not in ASKS_ONLY and (not written or self._reads(node)),
            product=self._has_product(node), computes=self._computes(node), repeats=self._repeats(node, taken, written),
            handle=self._is_handle(node), report=report, forwards=node.op in host_reports.FORWARDING,
            floating=self._is_floating(node), asserts=node.op == ASSERT or self._guards(node),
            checks=node.op in host_reports.CHECKS,
            first=next(map(tensor_of, arguments.data(node)), ""),
        )  # fmt: skip

    def _guards(self, node):
        """Whether it is a tf.cond of version 2 whose second branch asserts: what tf.Assert makes about floats."""
        if node.op not in CONDITIONALS or not {"then_branch", "else_branch"} <= set(node.attr):
            return False
        holds, fails = (self._bodies.get(node.attr[key].func.name) for key in ("then_branch", "else_branch"))
        if holds is None or fails is None:
            return False
        ops = {node.op for node in fails.node_def}
        return ASSERT in ops and ops <= OF_ASSERTIONS and ASSERT not in {inner.op for inner in holds.node_def}

    def _why_host(self, node):
        if node.op in host_reports.SILENT:
            return "it prints or asserts"
        if node.op in OTHERWISE:
            return OTHERWISE[node.op]
        if self._has_strings(node) and node.op not in host_reports.FORWARDING:
            return "it holds strings"
        called = writers.called(node, self._bodies)
        for body in called:
            reason = self._why_body(body)
            if reason:
                return reason
        return None if node.op in self._bodies else self._why_no_rule(node.op)

    def _why_body(self, body):
        name = body.signature.name
        if name not in self._body_reasons:
            self._body_reasons[name] = None  # a function that calls itself
            # of several ranks one may go on alone where its check fails
            left = host_reports.SILENT + host_reports.FORWARDING + (() if self._inside else host_reports.CHECKS)
            inner = (n for n in body.node_def if n.op not in left)
            on_host = ((n, self._why_host(n)) for n in inner if not self._serves_reports(n))
            reasons = ["its function has '%s' (%s): %s" % (n.name, n.op, why) for n, why in on_host if why]
            self._body_reasons[name] = reasons[0] if reasons else None
        return self._body_reasons[name]

    def _serves_reports(self, node):
        """Whether a node of a body makes text for prints, which are removed together with it."""
        return self._has_strings(node) and not self._ops[node.op].is_stateful if node.op in self._ops else False

    def _why_no_rule(self, op):
        if op in op_names.NAMES and op not in MEETING:  # which have rules for programs of several ranks
            return None
        return "the interpreter has no rule for it" + (", and " + HOST[op] if op in HOST else "")

    def _has_strings(self, node):
        definition = self._ops.get(node.op)
        known = [] if definition is None else [*definition.input_arg, *definition.output_arg]
        if any(argument.type == STRING for argument in known):
            return True
        return any(attr.type == STRING or STRING in attr.list.type for attr in node.attr.values())

    def _has_product(self, node):
        if any(part in node.op for part in PRODUCTS):
            return True
        return any(self._has_product(inner) for body in writers.called(node, self._bodies) for inner in body.node_def)

    def _is_floating(self, node):
        results = arguments.dtypes(self._ops[node.op].output_arg, node) if node.op in self._ops else ()
        return bool(results) and all(dtype in FLOATS for dtype in results)

    def _computes(self, node):
        """How many ops compute in floating point: of a call, in its functions."""
        called = writers.called(node, self._bodies)
        if called:
            return sum(self._of_body("computes", body, self._computed) for body in called)
        return int("T" in node.attr and node.attr["T"].type in FLOATS and node.op not in MOVING)

    def _computed(self, body):
        return sum(map(self._computes, body.node_def))

    def _reads(self, node):
        """Whether it is a call of functions that read a variable."""
        return any(self._of_body("reads", body, self._read_in) for body in writers.called(node, self._bodies))

    def _read_in(self, body):
        return any(node.op in READING or self._reads(node) for node in body.node_def)

    def _of_body(self, what, body, asked):
        """What a function is asked, once; nothing of one that calls itself."""
        key = what, body.signature.name
        if key not in self._of_bodies:
            self._of_bodies[key] = 0
            self._of_bodies[key] = asked(body)
        return self._of_bodies[key]

    def _repeats(self, node, taken, written):
        if written:
            return False
        if node.op in HANDLES:
            return True
        definition = self._ops.get(node.op)
        called = writers.called(node, self._bodies)
        if called and (taken or definition is None):  # an op that calls is stateful if its function may only read
            return not any(self._does_more_than_read(body, set()) for body in called)
        return node.op in writes.READS or not (definition is None or definition.is_stateful)

    def _does_more_than_read(self, body, seen):
        """Whether a function has stateful ops but those that read variables; `seen`: names of functions."""
        if body.signature.name in seen:
            return False
        seen.add(body.signature.name)
        for node in body.node_def:
            called = writers.called(node, self._bodies)
            if any(self._does_more_than_read(inner, seen) for inner in called):
                return True
            if not called and node.op not in writes.READS and self._is_stateful(node):
                return True
        return False

    def _is_stateful(self, node):
        return node.op not in self._ops or self._ops[node.op].is_stateful

    def _is_handle(self, node):
        definition = self._ops.get(node.op)
        return definition is not None and definition.is_stateful and _makes_handles(definition)
