"""npu-shim opt: the passes that make a training step one program, listed, or run on a graph file."""

from __future__ import annotations

import argparse
from typing import Any, Sequence

from npu_shim.cli.plan import names
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline, Watch

ALL = "all"
TITLE = """\
# Passes of a compiled step

What `compile_step`, `npu-shim export` and engine pjrt make of a step's graph, in the order in which it happens. The
lists are `npu_shim/xla/pipeline.py`; this page is `npu-shim opt --list --markdown`. The precision plan comes between
`prune` and `resources`. `npu-shim opt GRAPH --fetches A,B --passes a,b` runs some of the passes on a graph file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("graph", metavar="GRAPH", nargs="?", help="a graph: .pb, .pbtxt or .meta, or with .gz; a "
                        "SavedModel; or a checkpoint with its .meta")  # fmt: skip
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
        from npu_shim.xla.pipeline import PIPELINES

        print(markdown(PIPELINES) if args.markdown else "\n".join(listed(PIPELINES)))
        return 0
    if not args.graph:
        raise ConfigError("a graph file is needed, or --list")

    from npu_shim.cli import graph_file
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
            print("# after %d, %s\n%s" % (number, step.name, text.show(module)))

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


def listed(pipelines: Sequence[Pipeline]) -> list[str]:
    """Returns the lists as lines."""
    width = max(len(step.name) for line in pipelines for step in line.passes)
    lines = []
    for line in pipelines:
        lines.append("%s: %s" % (line.name, line.purpose))
        lines += ["  %-*s  %s" % (width, step.name, step.reason) for step in line.passes]
    return lines


def markdown(pipelines: Sequence[Pipeline]) -> str:
    """Returns docs/passes.md, without the last newline."""
    lines = [TITLE]
    for line in pipelines:
        lines += ["", "## %s" % line.name, "", "It %s." % line.purpose, ""]
        lines += ["| pass | why it stands here | requires | ensures |", "|---|---|---|---|"]
        for step in line.passes:
            needs, gives = (", ".join(each.name for each in side) for side in (step.requires, step.ensures))
            lines.append("| `%s` | %s | %s | %s |" % (step.name, step.reason, needs, gives))
    return "\n".join(lines)
