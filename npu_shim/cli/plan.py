"""npu-shim plan GRAPH --fetches A,B."""

from __future__ import annotations

import argparse
import json

from npu_shim.pjrt import whole
from npu_shim.rewriter.errors import ConfigError

OPTIONS = (
    "precision_mode", "precision_mode_v2", "modify_mixlist", "customize_dtypes", "graph_run_mode", "profile",
    "ops_info_dir", "amp_level",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("graph", metavar="GRAPH", help="a graph: .pb, .pbtxt or .meta, also with .gz behind it; a "
                        "SavedModel; or a checkpoint with its .meta")  # fmt: skip
    parser.add_argument("--fetches", metavar="A,B", default="", help="tensors and operations that are fetched or run")
    parser.add_argument("--feeds", metavar="X,Y", default="", help="tensors that are fed; placeholders need no name")
    add_precision_arguments(parser)
    parser.add_argument("--device", metavar="D", help="what runs it: CPU or GPU, where a node names none, or "
                        "XLA, for a step that is compiled as a whole; default: what is here")  # fmt: skip
    parser.add_argument("--engine", action="store_true", help="show what engine pjrt takes of it, and what stays in "
                        "the session, instead of its dtypes")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write all decisions as JSON; - for standard output")
    parser.add_argument("--write", metavar="OUT", help="write the rewritten graph: .pb or .pbtxt, also with .gz")


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
    from npu_shim.cli import graph_file
    from npu_shim.options import precision
    from npu_shim.options.rewriting import rewrite_graph
    from npu_shim.options.table import of_keywords
    from npu_shim.rewriter.planner import report

    chosen = precision.resolve(of_keywords({name: getattr(args, name) for name in OPTIONS}))
    graph, targets = graph_file.read(args.graph)
    fetches = names(args.fetches) or targets
    if not fetches:
        raise ConfigError("--fetches is needed: the tensors and operations that a training step fetches and runs")
    if args.engine:
        from npu_shim.engine import report as engine_report

        print(engine_report.of_graph(graph, fetches, [tensor_of(name) for name in names(args.feeds)]), end="")
        return 0
    done = rewrite_graph(graph, names(args.feeds), fetches, chosen, device(args.device))
    if args.write:
        graph_file.write(args.write, done.graph_def)
    text = json.dumps(report.as_json(done.plan, round(done.seconds, 3)), indent=1, sort_keys=True) + "\n"
    if args.json and args.json != "-":
        with whole.file(args.json) as f:
            f.write(text.encode("utf-8"))
    if args.json == "-":
        print(text, end="")
    else:
        print(report.as_text(done.plan, done.seconds) + report.group("modify_mixlist", chosen.matched), end="")
    return 0


def tensor_of(name: str) -> str:
    """Returns the name of a tensor: "x:0" for "x"."""
    return name if ":" in name else name + ":0"


def names(text: str) -> list[str]:
    """Splits "a, b" into its names."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


def device(wanted: str | None) -> str:
    """Returns one of `kernel_tables.DEVICES`: what is wanted, else what is here; ConfigError for another word."""
    from npu_shim.options import kernel_tables
    from npu_shim.session import clusters

    chosen = (wanted or clusters.accelerator()).upper()
    if chosen not in kernel_tables.DEVICES:
        raise ConfigError("--device is '%s', expected one of %s" % (wanted, ", ".join(kernel_tables.DEVICES)))
    return chosen
