"""npu-shim opt: the pipelines of a graph, listed, and run on a graph file, as a whole or in parts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Sequence

from npu_shim.cli.graphs import HELP
from npu_shim.cli.graphs.plan import names
from npu_shim.options.passes import Watching
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.passes.pipeline import NOBODY, Pass, Pipeline, Watch

ALL = "all"
STEP = ("prune", "precision")  # pipelines of a step that JAX interprets
TITLE = """\
# Passes

What is made of a graph, in the order in which it happens; this page is `npu-shim opt --list --markdown`.

- A session: `precision`, then `session`.
- `compile_step` and `npu-shim export`: `prune`, then `precision`; what attention is and what is computed again is
  decided for each set of feed shapes (`npu_shim/xla/interpreted.py`), and JAX interprets the graph.
- The engine: `precision`, then `engine` for each program that a run is cut into (`npu_shim/engine/partition` decides
  where each node runs), then `prune`.

`npu-shim opt GRAPH --fetches A,B --passes a,b` runs some of them on a graph file: passes of a session or of a compiled
step, by their names or those of their pipelines, and `precision` as a whole. `engine` needs a run of a session."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("graph", metavar="GRAPH", nargs="?", help=HELP)
    parser.add_argument("--fetches", metavar="A,B", default="", help="tensors and operations that are fetched or run")
    parser.add_argument("--passes", metavar="a,b", default=ALL, help="passes to run, in this order; a pipeline's name "
                        "stands for all of its passes; default: all, those of a compiled step")  # fmt: skip
    parser.add_argument("--precision-mode", metavar="MODE", default="allow_mix_precision", help="of the pipeline "
                        "precision; default: %(default)s")  # fmt: skip
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
    from npu_shim.options import precision
    from npu_shim.options.table import of_keywords
    from npu_shim.rewriter.ir import graphdef, text
    from npu_shim.xla.pipeline import module_of, results_of
    from npu_shim.xla.sources import Source

    chosen = parts_of(args.passes, runnable())
    shown = {step.name for part in parts_of(args.dump_after, runnable()) for step in part.passes}
    mode = precision.resolve(of_keywords({"precision_mode": args.precision_mode}))
    graph, targets = graph_file.read(args.graph)
    fetches = names(args.fetches) or targets
    if not fetches:
        raise ConfigError("--fetches is needed: the tensors and operations that a training step fetches and runs")
    Source.of(graph)  # TensorFlow says what is wrong with a graph

    def changed(number: int, step: Pass, module: Any) -> None:
        if step.name in shown:
            print("# after %d, %s\n%s" % (number, step.name, text.show(module, provenance=True)))

    module, watch = module_of(graph, results_of(fetches)), Watch(after_each=True, changed=changed)
    active = [name for part in chosen for name in run(part, module, _Job(graph, fetches, mode, watch))]
    if args.write:
        graph_file.write(args.write, graphdef.write(module))
        print("%s: %s" % (args.write, ", ".join(active) or "no pass changed anything"))
    elif not shown:
        print(text.show(module), end="")
    return 0


@dataclass(frozen=True)
class _Shown(Watching):
    """A Watch that holds for every pipeline."""

    watch: Watch = NOBODY

    def of(self, pipeline: str) -> Watch:
        return self.watch


class _Job(NamedTuple):
    """What the contexts of passes are made of: the graph as given, what is fetched, the mode, and who looks on."""

    graph_def: Any
    fetches: Sequence[str]
    mode: Any
    watch: Watch


def runnable() -> tuple[Pipeline, ...]:
    """Returns the pipelines that run on a file."""
    from npu_shim.rewriter.rewrite import PRECISION
    from npu_shim.session.pipeline import SESSION
    from npu_shim.xla.pipeline import PRUNE

    return (PRECISION, SESSION, PRUNE)


def run(part: Pipeline, module: Any, job: _Job) -> list[str]:
    """Runs a part of a pipeline on a module, in the context that a script's run gives; as `pipeline.run`."""
    from npu_shim.options.rewriting import rewrite_graph
    from npu_shim.rewriter.ir import graphdef
    from npu_shim.rewriter.passes import pipeline
    from npu_shim.session.pipeline import Run

    if part.has_promises:
        done = rewrite_graph(graphdef.write(module), (), job.fetches, job.mode, "XLA", watching=_Shown(watch=job.watch))
        graphdef.replace(module, done.graph_def)
        return [part.name] if done.plan.changed else []
    is_step = part.name != "session"
    context = None if is_step else Run(job.graph_def, (), job.fetches, None, True, True)
    return pipeline.run(part, module, context, job.watch)


def parts_of(words: str, pipelines: Sequence[Pipeline]) -> list[Pipeline]:
    """Returns the pipelines with the passes of them that words name, with commas between: passes, pipelines, or all.

    Neighbours of one pipeline are one part. Of `precision` there are no parts: each pass goes on with what the last one
    has found.

    Raises:
        ConfigError: there is no such pass; the message has the nearest name.
    """
    whole = {line.name: line for line in pipelines}
    single = {step.name: replace(line, passes=(step,)) for line in pipelines for step in line.passes}
    single = {name: line for name, line in single.items() if not line.has_promises}
    steps = sorted((line for line in pipelines if line.name in STEP), key=lambda line: STEP.index(line.name))
    parts: list[Pipeline] = []
    for word in names(words):
        if word not in {**whole, **single, ALL: None}:
            known = [*whole, *single, ALL]
            raise ConfigError("there is no pass '%s'%s; npu-shim opt --list shows them" % (word, nearest(word, known)))
        for line in steps if word == ALL else [whole.get(word) or single[word]]:
            if parts and parts[-1].name == line.name:
                parts[-1] = replace(line, passes=(*parts[-1].passes, *line.passes))
            else:
                parts.append(line)
    return parts


def listings() -> tuple[tuple[Pipeline, str], ...]:
    """Returns every pipeline of a graph with its file: precision, session, the engine's, those of a compiled step."""
    from npu_shim.engine.pipeline import ENGINE
    from npu_shim.rewriter.rewrite import PRECISION
    from npu_shim.session.pipeline import SESSION
    from npu_shim.xla.pipeline import PRUNE

    return (
        (PRECISION, "rewriter/rewrite.py"),
        (SESSION, "npu_shim/session/pipeline.py"),
        (ENGINE, "npu_shim/engine/pipeline.py"),
        (PRUNE, "npu_shim/xla/pipeline.py"),
    )


def listed(lists: Sequence[tuple[Pipeline, str]]) -> list[str]:
    """Returns the lists as lines."""
    width = max(len(step.name) for line, _ in lists for step in line.passes)
    lines = []
    for line, where in lists:
        lines.append("%s (%s): %s" % (line.name, where, line.purpose))
        lines += ["  %-*s  %s" % (width, step.name, step.reason) for step in line.passes]
    return lines


def markdown(lists: Sequence[tuple[Pipeline, str]]) -> str:
    """Returns docs/passes.md, without the last newline."""
    lines = [TITLE]
    for line, where in lists:
        lines += ["", "## %s" % line.name, "", "It %s (`%s`)." % (line.purpose, where), ""]
        rows = [["pass", "why it stands here"], *(["`%s`" % step.name, step.reason] for step in line.passes)]
        if any(step.promise for step in line.passes):
            promised = [step.promise.reason if step.promise else "" for step in line.passes]
            rows = [[*row, why] for row, why in zip(rows, ["why the graph means the same", *promised])]
        lines += ["| %s |" % " | ".join(row) for row in rows]
        lines.insert(len(lines) - len(line.passes), "|%s" % ("---|" * len(rows[0])))
    return "\n".join(lines)
