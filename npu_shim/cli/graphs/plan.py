"""npu-shim plan GRAPH --fetches A,B."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from npu_shim.cli.graphs import HELP
from npu_shim.distributed.collectives import in_graph
from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.errors import ConfigError, nearest, one_of

if TYPE_CHECKING:
    from npu_shim.options.precision import Precision
    from npu_shim.rewriter.rewrite import Rewritten

OPTIONS = (
    "precision_mode", "precision_mode_v2", "modify_mixlist", "customize_dtypes", "graph_run_mode", "profile",
    "ops_info_dir", "amp_level",
)  # fmt: skip

# option -> what cannot stand beside it
ALONE = {"engine": ("json", "html", "explain", "diff", "write"), "diff": ("json", "explain", "write")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    parser.add_argument("--fetches", metavar="A,B", default="", help="tensors and operations that are fetched or run")
    parser.add_argument("--feeds", metavar="X,Y", default="", help="tensors that are fed; placeholders need no name")
    add_precision_arguments(parser)
    parser.add_argument("--device", metavar="D", help="what runs it: CPU or GPU, where a node names none, or "
                        "XLA, for a step that is compiled as a whole; default: what is here")  # fmt: skip
    parser.add_argument("--engine", action="store_true", help="show what engine pjrt takes of it, and what stays in "
                        "the session, instead of its dtypes")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write all decisions as JSON; - for standard output")
    parser.add_argument("--html", metavar="OUT.html", help="write a page to look into: a map of the graph, search, "
                        "reasons")  # fmt: skip
    parser.add_argument("--explain", metavar="NODE", help="show the chain of reasons for a node's dtypes")
    parser.add_argument("--diff", metavar=("A", "B"), nargs=2, help="show what differs between two precision modes, "
                        "profiles or modify_mixlist files; the other options hold for both")  # fmt: skip
    parser.add_argument("--write", metavar="OUT", help="write the rewritten graph: .pb or .pbtxt, also with "
                        ".gz; or, of a SavedModel or a checkpoint, a SavedModel: a new folder")  # fmt: skip


def add_precision_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that are precision options: those of `OPTIONS`."""
    parser.add_argument("--precision-mode", metavar="M", help="default: by --graph-run-mode, as on the NPU")
    parser.add_argument("--precision-mode-v2", metavar="M")
    parser.add_argument("--modify-mixlist", metavar="FILE", help="changes to the white, gray and black lists")
    parser.add_argument("--customize-dtypes", metavar="FILE", help="dtypes of single ops, by name or by type")
    parser.add_argument("--amp-level", metavar="L", help="O0, O1, O2, O3 or auto, instead of a precision mode")
    parser.add_argument("--graph-run-mode", metavar="N", type=int, help="0 inference, 1 training (default)")
    parser.add_argument("--profile", metavar="P", help="ascend910 (default), gpu, grappler or grappler_1.15")
    parser.add_argument("--ops-info-dir", metavar="DIR", help="an edited copy of the op information files")


def main(args: argparse.Namespace) -> int:
    """Prints the report; writes what was asked for. Returns the exit status."""
    from npu_shim.cli import pages
    from npu_shim.options import precision
    from npu_shim.options.table import of_keywords

    require_alone(args)
    out = pages.checked(args.html, "--html") if args.html else None
    if args.json and args.json != "-":
        pages.checked_file(args.json, "--json", "")
    given = {name: getattr(args, name) for name in OPTIONS}
    wanted = [variant(word, given) for word in args.diff] if args.diff else [given]
    chosen = [precision.resolve(of_keywords(options)) for options in wanted]

    from npu_shim.cli.graphs import graph_file, saved_model  # TensorFlow: late, so that a wrong option is told at once

    if args.write and saved_model.is_named(args.write):
        saved_model.require_writable(args.write, graph_file.file_of(args.graph))
    graph, targets = graph_file.read(args.graph)
    fetches = names(args.fetches) or targets
    if not fetches:
        raise ConfigError("--fetches is needed: the tensors and operations that a training step fetches and runs")
    if args.engine:
        from npu_shim.engine import report as engine_report

        print(engine_report.of_graph(graph, fetches, [tensor_of(name) for name in names(args.feeds)]), end="")
        return 0
    asked = Asked(graph, names(args.feeds), fetches, device(args.device))
    if args.diff:
        return show_differences(asked, args, chosen, out)
    done = rewritten(asked, chosen[0])
    text = text_of(args, chosen[0], done)  # a node of --explain that is none ends it before anything is written
    write(asked, args, chosen[0], done, out)
    print(text, end="")
    if not args.json and not args.explain:
        print(collectives(asked), end="")
    return 0


def require_alone(args: argparse.Namespace) -> None:
    """Raises ConfigError for an option whose output another one has no place for."""
    if args.json == "-" and args.explain:
        raise ConfigError("--json - and --explain: both go to standard output, give one")
    for name, others in ALONE.items():
        given = ["--" + other for other in others if getattr(args, other)]
        if getattr(args, name) and given:
            raise ConfigError("--%s and %s: each tells something else of the graph, give one" % (name, given[0]))


class Asked(NamedTuple):
    """A graph and its interface, and what runs it."""

    graph: Any
    feeds: Sequence[str]
    fetches: Sequence[str]
    device: str


def collectives(asked: Asked) -> str:
    """The report's line about collectives, with those fused that a session fuses; "" where there are none."""
    calls = in_graph.counted(asked.graph, asked.fetches)
    if not calls:
        return ""

    from npu_shim.distributed.collectives import call_fusion
    from npu_shim.engine import report as engine_report
    from npu_shim.options.ops import kernel_tables
    from npu_shim.rewriter.ir import graphdef

    module = graphdef.read(asked.graph)
    call_fusion.fuse(module)
    counted = in_graph.counted(graphdef.write(module), asked.fetches)
    programs, inside = None, False
    if kernel_tables.compiles_steps():
        run = asked.graph, asked.fetches, [tensor_of(name) for name in asked.feeds]
        programs, inside = engine_report.programs(*run), engine_report.ranks_meet_inside(*run)
    return in_graph.as_text(counted, sum(calls.values()), programs, inside)


def rewritten(asked: Asked, chosen: Precision) -> Rewritten:
    """Rewrites a graph by resolved options."""
    from npu_shim.options.rewriting import rewrite_graph

    return rewrite_graph(asked.graph, asked.feeds, asked.fetches, chosen, asked.device)


def name_of(graph: str) -> str:
    """What a page calls a graph that is given as the path of a file, a SavedModel or a checkpoint."""
    return os.path.basename(os.path.normpath(graph))


def page_of(asked: Asked, chosen: Precision, done: Rewritten, title: str) -> dict[str, Any]:
    """The page of a planned graph."""
    from npu_shim.options.reports import pages

    return pages.page(done, asked.graph, asked.feeds, asked.fetches, chosen, title)


def text_of(args: argparse.Namespace, chosen: Precision, done: Rewritten) -> str:
    """What is printed: the report, the explanation, or all decisions as JSON."""
    from npu_shim.rewriter.planner import explain, report

    if args.json == "-":
        return as_json(done)
    text: str = explain.explain(done.plan, args.explain) if args.explain else report.as_text(done.plan, done.seconds)
    return text if args.explain else text + report.group("modify_mixlist", chosen.matched)


def write(asked: Asked, args: argparse.Namespace, chosen: Precision, done: Rewritten, out: str | None) -> None:
    """Writes the files that are asked for."""
    from npu_shim.cli import pages
    from npu_shim.cli.graphs import graph_file, saved_model

    if args.write and saved_model.is_named(args.write):

        def rewrite(graph: Any, feeds: Sequence[str], fetches: Sequence[str]) -> Any:
            return rewritten(Asked(graph, feeds, fetches, asked.device), chosen).graph_def

        saved_model.write(args.write, graph_file.file_of(args.graph), asked.feeds, asked.fetches, rewrite)
    elif args.write:
        graph_file.write(args.write, done.graph_def)
    if out:
        pages.write(out, [page_of(asked, chosen, done, name_of(args.graph))], name_of(args.graph))
    if args.json and args.json != "-":
        with atomic_write.file(args.json) as f:
            f.write(as_json(done).encode("utf-8"))


def as_json(done: Rewritten) -> str:
    """All decisions as JSON."""
    from npu_shim.rewriter.planner import report

    return json.dumps(report.as_json(done.plan, round(done.seconds, 3)), indent=1, sort_keys=True) + "\n"


def show_differences(asked: Asked, args: argparse.Namespace, both: Sequence[Precision], out: str | None) -> int:
    """Prints, and with --html writes, what differs between the plans of two sets of options."""
    from npu_shim.cli import pages
    from npu_shim.rewriter.planner import explain

    one, other = (rewritten(asked, chosen) for chosen in both)
    differences = explain.differences(one.plan, other.plan)
    if out:
        page = page_of(asked, both[1], other, name_of(args.graph))
        rows = [[slot.node, slot.op, slot.one, slot.other] for slot in differences]
        page["differences"] = {"one": args.diff[0], "other": args.diff[1], "nodes": rows}
        pages.write(out, [page], "%s: %s and %s" % (name_of(args.graph), *args.diff))
    print(explain.as_text(differences, *args.diff), end="")
    return 0


def variant(word: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options with one of them replaced by what `word` names: a mode, a profile or a mixlist's path.

    Raises:
        ConfigError: it is none of these.
    """
    from npu_shim.options.profiles import PROFILES
    from npu_shim.rewriter.tables.policy import PRECISION_MODE, PRECISION_MODE_V2

    if word in PRECISION_MODE:
        return {**given, "precision_mode": word, "precision_mode_v2": None}
    if word in PRECISION_MODE_V2:
        return {**given, "precision_mode": None, "precision_mode_v2": word}
    if word in PROFILES:
        return {**given, "profile": word}
    if os.path.exists(word):
        return {**given, "modify_mixlist": word}
    known = [*PRECISION_MODE, *PRECISION_MODE_V2, *PROFILES]
    text = "--diff: '%s' is no precision mode, profile or modify_mixlist file%s"
    raise ConfigError(text % (word, nearest(word, known)))


def tensor_of(name: str) -> str:
    """Returns the name of a tensor: "x:0" for "x"."""
    return name if ":" in name else name + ":0"


def names(text: str) -> list[str]:
    """Splits "a, b" into its names."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


def device(wanted: str | None) -> str:
    """Returns one of `kernel_tables.DEVICES`: what is wanted, else what is here; ConfigError for another word."""
    from npu_shim.options.ops import kernel_tables
    from npu_shim.session import devices

    chosen = (wanted or devices.accelerator()).upper()
    return one_of(chosen, kernel_tables.DEVICES, "--device")
