"""A step's options, of its call, its session and the environment, and the rewrite to mixed precision that they ask."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from npu_shim.options import passes, precision, watch_options, words
from npu_shim.options import table as option_table
from npu_shim.options.passes import Watching
from npu_shim.options.rewriting import rewrite_graph
from npu_shim.pjrt import program_cache
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.planner.decisions import Plan
from npu_shim.session import lines
from npu_shim.xla import recent

# options that ask for no rewrite by themselves
NO_REWRITE = frozenset([words.ATTENTION.key, words.RECOMPUTE.key, program_cache.KEY, recent.KEY, *passes.VARIABLES])


class Asked(NamedTuple):
    """What a step's options ask for.

    Attributes:
        values: option values, None if neither session nor call has any.
        recompute: one of `options.words.RECOMPUTE`.
        attention: one of `options.words.ATTENTION`.
        watching: who looks on while passes run.
    """

    values: dict[str, Any] | None
    recompute: str
    attention: str
    watching: Watching


def options_of(source: Any, given: Mapping[str, Any]) -> Asked:
    """Returns what the options of a step ask for.

    Args:
        source: the `sources.Source` of the step; its session's options hold where the call gives none.
        given: the call's options.

    Raises:
        ConfigError: an option that there is not, or a word that an option does not know.
    """
    own = option_table.of_keywords(given)
    values = {**(source.options or {}), **own}
    asked = Asked(values, words.RECOMPUTE.of(values), words.ATTENTION.of(values), passes.wanted(values))
    if source.options is None and not own.keys() - NO_REWRITE:
        return asked._replace(values=None)
    for name in watch_options.switched_on(values):
        lines.once("%s has no effect in a step that is compiled as a whole: it watches sessions" % name)
    return asked


def cache_of(source: Any, given: Mapping[str, Any]) -> str:
    """Returns the folder for compiled programs, "" for none; arguments and errors as for `options_of`."""
    own = option_table.of_keywords(given)
    return program_cache.folder({**(source.options or {}), **own}.get(program_cache.KEY))


def programs_of(source: Any, given: Mapping[str, Any]) -> int:
    """Returns how many programs of the step are kept at a time; arguments and errors as for `options_of`."""
    return recent.most_of({**(source.options or {}), **option_table.of_keywords(given)})


def rewritten(
    source: Any, graph_def: Any, fetches: Any, feeds: Any, values: Mapping[str, Any] | None, device: str | None
) -> tuple[Any, Plan | None]:
    """Returns (GraphDef, Plan) of a step, or the GraphDef itself and None for `values` None.

    Args:
        source: the `sources.Source` of the step.
        graph_def: the step's part of its graph.
        fetches: names of tensors and operations.
        feeds: names of the Placeholders that are fed.
        values: option values.
        device: "CPU", "GPU" or None.

    Raises:
        ConfigError: another device, or an option that is invalid.
        PlanError: the graph cannot be rewritten.
    """
    if device not in (None, "CPU", "GPU"):
        raise ConfigError("device is '%s', expected CPU or GPU" % (device,))
    if values is None:
        return graph_def, None
    chosen = precision.resolve(values)
    built = {node.name: node.op for node in source.graph_def.node} if chosen.customized is not None else {}
    done = rewrite_graph(graph_def, feeds, fetches, chosen, "XLA", built, passes.wanted(values))
    for text in (*done.plan.warnings, *done.plan.unmatched):
        lines.once(text)
    return done.graph_def, done.plan
