"""The rewriter as one function: options in the user's words, a GraphDef in, a GraphDef and its plan out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.options import passes, precision, table
from npu_shim.options.ops import customize, kernel_tables
from npu_shim.options.passes import NOBODY, Watching
from npu_shim.options.reports import pages
from npu_shim.rewriter.errors import ConfigError, nearest, shortened
from npu_shim.rewriter.graphdef import inlined_names
from npu_shim.rewriter.graphdef.saturating import saturated
from npu_shim.rewriter.planner.decisions import Plan
from npu_shim.rewriter.planner.overrides import NO_OVERRIDES, Override, Overrides
from npu_shim.rewriter.rewrite import PRECISION, Asked, Rewritten, rewrite_graph_def
from npu_shim.rewriter.tables.dtypes import NUMBERS


def rewrite(
    graph_def: tf.GraphDef, fetches: Iterable[str], feeds: Iterable[str] = (), device: str = "CPU", **options: Any
) -> tuple[tf.GraphDef, Plan]:
    """Rewrites a graph to mixed precision, exactly as a session does.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        fetches: names of tensors or operations that are fetched or run; they keep their names and dtypes.
        feeds: names of tensors that are fed.
        device: where the result runs: "CPU" or "GPU", for nodes that name no device, or "XLA" for a step that is
            compiled as a whole, as by compile_step and export.
        **options: as in NPURunConfig and in NpuOptimizer's parameter_map (precision_mode, precision_mode_v2,
            modify_mixlist, customize_dtypes, graph_run_mode, ...), and our own: `profile` ("ascend910", the default,
            "gpu" or "grappler"), `ops_info_dir`, `amp_level` and `saturate`.

    Returns:
        (GraphDef, Plan).

    Raises:
        ConfigError: a graph, an option, a file, a device, a fetch or a feed is not accepted.
        PlanError: an op must run in a dtype that the profile or the op lacks.
        VerifyError: the result breaks the contract (a fault of npu_shim).

    TensorFlow's own optimizers run over the result, and move casts to the variable that they are of. Reads of reference
    variables that wait for a write survive that. A cast of `v * 1` or its like, made before a write and read in low
    precision only after it, does not, as one written by hand does not; in a session, which casts last, it does.

    Example:
        >>> rewritten, plan = npu_shim.rewrite(graph.as_graph_def(), ["loss:0"], precision_mode="allow_mix_precision")
    """
    _check_graph(graph_def)
    fetches, feeds = _names("fetches", fetches), _names("feeds", feeds)
    values = table.of_keywords(options)
    chosen, watching = precision.resolve(values), passes.wanted(values)
    done = rewrite_graph(graph_def, feeds, fetches, chosen, device, watching=watching)
    return done.graph_def, done.plan


def _check_graph(graph_def: Any) -> None:
    """Raises ConfigError for a tf.Graph or a MetaGraphDef instead of a GraphDef."""
    if not isinstance(graph_def, tf.GraphDef):
        hint = {"Graph": ": give graph.as_graph_def()", "FuncGraph": ": give graph.as_graph_def()"}
        hint["MetaGraphDef"] = ": give its field graph_def"
        kind = type(graph_def).__name__
        raise ConfigError("graph_def is a %s, expected a tf.compat.v1.GraphDef%s" % (kind, hint.get(kind, "")))


def _names(what: str, given: Any) -> list[str]:
    """Returns names as a list; raises ConfigError for one name, for tensors instead of names, for what is no list."""
    try:
        names = list(given)
    except TypeError:  # None, a number, or a tensor, which has no rows while a graph is built
        names = [given]
    if isinstance(given, str) or not all(isinstance(name, str) for name in names):
        text = "%s is %s, expected a list of names of tensors or operations"
        raise ConfigError(text % (what, shortened(repr(given))))
    return names


def rewrite_graph(
    graph_def: tf.GraphDef,
    feeds: Iterable[str],
    preserved: Iterable[str],
    chosen: precision.Precision,
    device: str = "CPU",
    built: Mapping[str, str] = MappingProxyType({}),
    watching: Watching = NOBODY,
) -> Rewritten:
    """Rewrites a graph according to resolved options.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        feeds: names of tensors that are fed.
        preserved: names of nodes or tensors whose names and dtypes must stay.
        chosen: the `precision.Precision` of the options.
        device: one of `kernel_tables.DEVICES`: whose kernels run the result.
        built: name -> op of the nodes of the graph as the user built it, which the options may name: `graph_def` may be
            a part of it, in which constants are folded.
        watching: who looks on while passes run.

    Returns:
        Rewritten.
    """
    chosen = _for_inlined(chosen, graph_def)

    def unmatched(view):
        counts = Counter(node.op for node in view.nodes)
        return chosen.unmatched_in(counts) + _unknown_nodes(chosen, view, built) + _surplus(chosen, view, built)

    folded = _folded(chosen, graph_def, built)
    asked = Asked(
        chosen.policy,
        chosen.table,
        kernel_tables.of(device),
        _to_overrides(chosen.customized, folded),
        chosen.warnings + tuple(map(_of_folded, folded)),
        unmatched,
    )
    feeds, preserved = list(feeds), list(preserved)
    done = rewrite_graph_def(graph_def, feeds, preserved, asked, watching.of(PRECISION.name))
    pages.keep(done, graph_def, feeds, preserved, chosen)
    return replace(done, graph_def=saturated(done.graph_def, feeds)) if chosen.policy.saturates else done


def _for_inlined(chosen, graph_def):
    """Gives the nodes that TensorFlow has inlined the requests that customize_dtypes has under a plan's names."""
    asked = {} if chosen.customized is None else dict(chosen.customized.by_name)
    if not asked:
        return chosen
    lacking = {inlined_names.place(name): name for name in asked.keys() - {node.name for node in graph_def.node}}
    for node in graph_def.node if lacking else ():
        name = lacking.get(inlined_names.place(node.name))
        if name is not None:
            asked[node.name] = chosen.customized.by_name[name]
            asked.pop(name, None)
    return replace(chosen, customized=replace(chosen.customized, by_name=asked)) if lacking else chosen


def _folded(chosen, graph_def, built):
    """Names of the nodes of customize_dtypes that were computed before the rewrite, and are constants now."""
    if chosen.customized is None or not chosen.customized.by_name:
        return []
    asked = chosen.customized.by_name
    constants = (node.name for node in graph_def.node if node.name in asked and node.op == "Const")
    return sorted(name for name in constants if built.get(name, "Const") != "Const")


def _of_folded(name):
    return shortened("customize_dtypes: TensorFlow computes '%s' before the graph runs, in its own dtype" % name)


def _to_overrides(customized, left_out):
    """Translates the requests of customize_dtypes, those for some nodes left out, into the rewriter's terms."""
    if customized is None:
        return NO_OVERRIDES

    def override(custom):
        inputs, outputs = ([d and NUMBERS[d] for d in dtypes] for dtypes in (custom.inputs, custom.outputs))
        source = "customize_dtypes %s line %d" % (customized.path, custom.line)
        return Override(tuple(inputs), tuple(outputs), source, custom.replaced)

    by_name = {name: override(custom) for name, custom in customized.by_name.items() if name not in left_out}
    return Overrides(by_name, {op: override(custom) for op, custom in customized.by_op.items()})


def _unknown_nodes(chosen, view, built):
    """Returns one line for each node of customize_dtypes that is neither in the graph nor in `built`."""
    if chosen.customized is None:
        return ()
    run = {node.name for node in view.nodes}
    names = run.union(built)
    missing = sorted(set(chosen.customized.by_name) - names)
    missing = [name for name in missing if not _of_another_run(name, run, built)]
    texts = ("customize_dtypes: no node '%s' in the graph%s" % (name, nearest(name, names)) for name in missing)
    return tuple(map(shortened, texts))


def _surplus(chosen, view, built):
    """Returns the lines of `customize.surplus` for the nodes that still have the op that they were built with."""
    if chosen.customized is None or not chosen.customized.by_name:
        return ()
    asked = chosen.customized.by_name
    nodes = [node for node in view.nodes if node.name in asked and built.get(node.name, node.op) == node.op]
    counted = ((node.name, node.op, len(node.layout.inputs), len(node.layout.outputs)) for node in nodes)
    return tuple(shortened(text) for row in counted for text in customize.surplus(chosen.customized, *row))


def _of_another_run(name, run, built):
    """Whether a plan's name of a node in a function belongs to a call of the user's graph that this run lacks."""
    call, bracket, _ = name.partition("[")
    return bool(bracket) and call in built and not any(other.startswith(call + "/") for other in run - built.keys())
