"""npu-shim opt: the pipelines of a graph, listed; those of a compiled step run on a graph file."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Sequence

from npu_shim.cli.graphs import HELP
from npu_shim.cli.graphs.plan import names
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline, Property, Watch

ALL = "all"
TITLE = """\
# Passes

What is made of a graph, in the order in which it happens; this page is `npu-shim opt --list --markdown`.

- A session: `precision`, then `session`.
- `compile_step` and `npu-shim export`: `prune`, `precision`, `resources`, `shapes`.
- The engine: `precision`, then `engine` for each program that a run is cut into (`npu_shim/engine/partition` decides
  where each node runs), then `prune`, `resources`, `shapes`.

`npu-shim opt GRAPH --fetches A,B --passes a,b` runs some of the passes of a compiled step on a graph file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("graph", metavar="GRAPH", nargs="?", help=HELP)
    parser.add_argument("--fetches", metavar="A,B", default="", help="tensors and operations that are fetched or run")
    parser.add_argument("--passes", metavar="a,b", default=ALL, help="passes to run, in this order; a pipeline's name "
                        "stands for all of its passes; default: all")  # fmt: skip
    parser.add_argument("--dump-after", metavar="a,b", default="", help="print the graph after these passes, where "
                        "they changed something; all for every pass")  # fmt: skip
    parser.add_argument("--write", metavar="OUT", help="write the graph: .pb or .pbtxt, also with .gz; default: print "
                        "it as text")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="show the passes in the order in which they run, each with "
                        "the reason for its place")  # fmt: skip
    parser.add_argument("--markdown", action="store_true", help="with --list: as docs/passes.md has it")


def main(args: argparse.Namespace) -> int:
    """Lists passes, or runs some. Returns the exit status."""
    if args.list:
        lists = listings()
        print(markdown(lists) if args.markdown else "\n".join(listed(lists)))
        return 0
    if not args.graph:
        raise ConfigError("a graph file is needed, or --list")

    from npu_shim.cli.graphs import graph_file
    from npu_shim.rewriter.ir import graphdef, text
    from npu_shim.rewriter.passes import pipeline
    from npu_shim.xla.pipeline import PIPELINES, Context, module_of, results_of
    from npu_shim.xla.sources import Source

    chosen = passes_of(args.passes, PIPELINES)
    shown = {step.name for step in passes_of(args.dump_after, PIPELINES)}
    graph, targets = graph_file.read(args.graph)
    fetches = names(args.fetches) or targets
    if not fetches:
        raise ConfigError("--fetches is needed: the tensors and operations that a training step fetches and runs")
    Source.of(graph)  # TensorFlow says what is wrong with a graph
    module = module_of(graph, results_of(fetches))

    def changed(number: int, step: Pass, module: Any) -> None:
        if step.name in shown:
            print("# after %d, %s\n%s" % (number, step.name, text.show(module, provenance=True)))

    line = Pipeline("opt", "runs the passes that were asked for", chosen)
    active = pipeline.run(line, module, Context(has_kernels=True), Watch(each=True, changed=changed))
    if args.write:
        graph_file.write(args.write, graphdef.write(module))
        print("%s: %s" % (args.write, ", ".join(active) or "no pass changed anything"))
    elif not shown:
        print(text.show(module), end="")
    return 0


def passes_of(words: str, pipelines: Sequence[Pipeline]) -> tuple[Pass, ...]:
    """Returns the passes that words name, with commas between: passes, pipelines, or all.

    Raises:
        ConfigError: there is no such pass; the message has the nearest name.
    """
    known: dict[str, tuple[Pass, ...]] = {step.name: (step,) for line in pipelines for step in line.passes}
    known.update((line.name, line.passes) for line in pipelines)
    known[ALL] = tuple(step for line in pipelines for step in line.passes)
    for word in names(words):
        if word not in known:
            raise ConfigError("there is no pass '%s'%s; npu-shim opt --list shows them" % (word, nearest(word, known)))
    return tuple(step for word in names(words) for step in known[word])


@dataclass(frozen=True)
class Listing:
    """A pipeline as people read it.

    Attributes:
        name, purpose: of the pipeline; the purpose goes on where "It " begins.
        where: its file.
        columns: what is said of a pass beside its name and the reason for its place.
        rows: for each pass its name, the reason, and a text for each column.
    """

    name: str
    purpose: str
    where: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def listings() -> tuple[Listing, ...]:
    """Returns every pipeline of a graph: precision, session, the engine's, and those of a compiled step."""
    from npu_shim.engine.pipeline import ENGINE
    from npu_shim.rewriter import rewrite
    from npu_shim.session.pipeline import SESSION
    from npu_shim.xla.pipeline import PIPELINES

    return (
        _listing(rewrite.PRECISION, "rewriter/rewrite.py"),
        _listing(SESSION, "npu_shim/session/pipeline.py"),
        _listing(ENGINE, "npu_shim/engine/pipeline.py"),
        *(_listing(line, "npu_shim/xla/pipeline.py") for line in PIPELINES),
    )


def _names(properties: Iterable[Property]) -> str:
    return ", ".join(held.name for held in properties)


COLUMNS: dict[str, Callable[[Pass], str]] = {
    "why the graph means the same": lambda step: step.promise.reason if step.promise else "",
    "requires": lambda step: _names(step.requires),
    "ensures": lambda step: _names(step.ensures),
}


def _listing(line: Pipeline, where: str) -> Listing:
    columns = tuple(title for title, told in COLUMNS.items() if any(map(told, line.passes)))
    rows = tuple((step.name, step.reason, *(COLUMNS[title](step) for title in columns)) for step in line.passes)
    return Listing(line.name, line.purpose, where, columns, rows)


def listed(lists: Sequence[Listing]) -> list[str]:
    """Returns the lists as lines."""
    width = max(len(row[0]) for line in lists for row in line.rows)
    lines = []
    for line in lists:
        lines.append("%s (%s): %s" % (line.name, line.where, line.purpose))
        lines += ["  %-*s  %s" % (width, row[0], row[1]) for row in line.rows]
    return lines


def markdown(lists: Sequence[Listing]) -> str:
    """Returns docs/passes.md, without the last newline."""
    lines = [TITLE]
    for line in lists:
        lines += ["", "## %s" % line.name, "", "It %s (`%s`)." % (line.purpose, line.where), ""]
        columns = ("pass", "why it stands here", *line.columns)
        lines += ["| %s |" % " | ".join(columns), "|%s" % ("---|" * len(columns))]
        lines += ["| `%s` | %s |" % (row[0], " | ".join(row[1:])) for row in line.rows]
    return "\n".join(lines)
