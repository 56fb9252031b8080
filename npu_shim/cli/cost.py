"""npu-shim cost GRAPH --fetches A,B, or npu-shim cost DIR [DIR ...]."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from npu_shim.cli.export import add_step_arguments, step_of
from npu_shim.cli.plan import OPTIONS
from npu_shim.rewriter.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("what", metavar="GRAPH|DIR", nargs="+", help="a training graph: as written beside the "
                        "precision mode (needs TensorFlow); or exported steps, side by side (needs JAX)")  # fmt: skip
    add_step_arguments(parser)
    parser.add_argument("--device", metavar="D", help="of a graph: CPU or GPU, what it is for; of "
                        "exported steps: cpu or cuda, which they are compiled for")  # fmt: skip
    parser.add_argument("--no-compile", action="store_true", help="leave out what only the compiler knows; seconds")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON; - for standard output")


def main(args: argparse.Namespace) -> int:
    """Prints the report; writes what was asked for. Returns the exit status."""
    from npu_shim.pjrt.cost import as_json, as_text

    costs = _costs(args)
    text = json.dumps(as_json(costs), indent=1, sort_keys=True) + "\n"
    if args.json == "-":
        print(text, end="")
        return 0
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            f.write(text)
    print(as_text(costs), end="")
    return 0


def _costs(args: argparse.Namespace) -> list[Any]:
    if all(os.path.isdir(path) for path in args.what):
        from npu_shim.pjrt.cost import of_folder

        return [of_folder(path, args.device, not args.no_compile) for path in args.what]
    if len(args.what) > 1:
        missing = [path for path in args.what if not os.path.isdir(path)]
        raise ConfigError("'%s' is no folder; several things to compare are exported steps" % missing[0])
    args.graph = args.what[0]
    from npu_shim.export.cost import of_graph

    source, fetches, feeds, given = step_of(args)
    options = {name: given.pop(name) for name in OPTIONS if name in given}
    return of_graph(source, fetches, feeds, options, not args.no_compile, **given)
