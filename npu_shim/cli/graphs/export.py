"""npu-shim export GRAPH --fetches A,B --feeds X,Y --out DIR."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any, Iterable

from npu_shim.cli.graphs import HELP
from npu_shim.cli.graphs.plan import OPTIONS, add_precision_arguments, names
from npu_shim.rewriter.errors import ConfigError

STEP_OPTIONS = ("recompute", "attention")
# ops that bring what a step trains on; `npu_shim.pjrt` is given it instead
READERS = ("IteratorGetNext", "IteratorGetNextSync", "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2")
SHAPES = re.compile(r"^(?P<name>[^=]+)=(?P<sizes>\d*(,\d+)*)$")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_step_arguments(parser)
    parser.add_argument("--device", metavar="D", help="CPU or GPU; for a CPU, float32's kernels compute float16")
    parser.add_argument("--out", metavar="DIR", required=True, help="a new or empty folder")
    parser.add_argument("--jax", metavar="PYTHON", help="an interpreter with JAX; default: this one if it has JAX, "
                        "else $NPU_SHIM_JAX, else that of npu-shim engine install")  # fmt: skip


def add_step_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say what the step is."""
    parser.add_argument("--fetches", metavar="A,B", default="", help="tensors and operations of a training step")
    parser.add_argument("--feeds", metavar="X,Y", default="", help="tensors to feed; default: the placeholders "
                        "that the fetches need, and what they take from iterators and queues")  # fmt: skip
    parser.add_argument("--batch", metavar="N", type=int, help="size of unknown first dimensions of what is fed")
    parser.add_argument("--shape", metavar="X=2,3", action="append", default=[], help="shape of one feed; repeatable")
    parser.add_argument("--constant", metavar="X=JSON", action="append", default=[], help="a tensor's value, made part "
                        "of the program; repeatable")  # fmt: skip
    parser.add_argument("--checkpoint", metavar="CKPT", help="initial values: a checkpoint, or a folder with some")
    parser.add_argument("--init", metavar="OP", help="initial values: an operation of the graph that makes them")
    parser.add_argument("--float32-products", metavar="P", default="default", help="highest: float32 products in "
                        "float32; default: in what the device takes, TF32 on NVIDIA GPUs")  # fmt: skip
    parser.add_argument("--recompute", metavar="M", help="auto (default), off or memory: what the backward pass "
                        "computes again instead of keeping it")  # fmt: skip
    parser.add_argument("--attention", metavar="M", help="auto (default) or off: whether attention is a kernel in "
                        "programs for GPUs")  # fmt: skip
    add_precision_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Exports the step and says in lines what was written. Returns the exit status."""
    from npu_shim.export import step as export
    from npu_shim.pjrt import manifest

    source, fetches, feeds, given = step_of(args)
    written, step = export.exported(source, fetches, feeds, args.out, jax=args.jax, **given)
    if manifest.STATE not in written.sha256:
        print("no --checkpoint and no --init: the values of variables are not exported")
    print("%s: %d feeds, %d variables, %d results, as %s" % (
        args.out, len(written.feeds), len(written.state), len(written.results), written.kind
    ))  # fmt: skip
    if "policy" in written.plan:
        print("{policy}: {lowered} of {slots} float slots lowered".format(**written.plan))
    print(step.recomputation.as_text(), end="")
    print(step.attention.as_text(), end="")
    return 0


def step_of(args: argparse.Namespace) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Returns (Source, fetches, feeds with shapes, keyword arguments of `step_function.prepare` and `export`)."""
    from npu_shim.cli.graphs import graph_file
    from npu_shim.xla.sources import Source

    if args.batch is not None and args.batch < 1:
        raise ConfigError("--batch is %d, expected 1 or more" % args.batch)
    graph, targets = graph_file.read(args.graph)
    source = Source.of(graph)
    fetches = names(args.fetches) or targets
    if not fetches:
        raise ConfigError("--fetches is needed: the tensors and operations that a training step fetches and runs")
    if args.checkpoint and args.init:
        raise ConfigError("--checkpoint and --init both say where initial values come from; give one")
    constants = _named("--constant", map(_constant, args.constant))
    feeds = feeds_of(source, fetches, args, args.batch)
    given = {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}
    device = args.device and args.device.upper()
    given.update(constants=constants or None, float32_products=args.float32_products, device=device)
    given.update({name: getattr(args, name) for name in STEP_OPTIONS if getattr(args, name) is not None})
    given["values"] = _values(args.checkpoint, source.graph) if args.checkpoint else None
    return source.initialized(args.init) if args.init else source, fetches, feeds, given


def feeds_of(source: Any, fetches: Any, args: argparse.Namespace, batch: int | None) -> dict[str, Any]:
    """Returns feed name -> full shape; `batch` is the size of open first dimensions."""
    constants = _named("--constant", map(_constant, args.constant))
    wanted = names(args.feeds) or _inputs(source, fetches, constants)
    shapes = _named("--shape", map(_shape, args.shape))
    feeds = {}
    for name in wanted:
        argument = source.feed(name)
        given = shapes.pop(argument.name, None)  # [] is the shape of a scalar
        feeds[name] = _with_batch(argument, batch) if given is None else given
    if shapes:
        raise ConfigError("--shape is given for '%s', which is not fed" % sorted(shapes)[0])
    return feeds


def _inputs(source: Any, fetches: Any, constants: Any) -> list[str]:
    """What feeds the fetches: a graph has other placeholders and iterators, for prediction, or for another step."""
    from npu_shim.session.observers import dump

    elements = [source.graph.as_graph_element(getattr(fetch, "name", fetch)) for fetch in map(source.fetch, fetches)]
    needed = set(dump.upstream(source.graph, [getattr(element, "op", element) for element in elements], constants))
    given = [op for op in source.graph.get_operations() if op in needed and op.type in ("Placeholder", *READERS)]
    tensors = [tensor for op in given for tensor in op.outputs
               if op.type == "Placeholder" or needed.intersection(tensor.consumers())]  # fmt: skip
    return [tensor.name for tensor in tensors if tensor.name not in constants]


def _with_batch(argument: Any, batch: int | None) -> Any:
    sizes = None if argument.shape.rank is None else argument.shape.as_list()
    if sizes and sizes[0] is None:
        sizes[0] = batch
    if sizes is None or None in sizes:
        raise ConfigError("feed '%s' has shape %s: give --shape %s=2,3%s" % (
            argument.name, argument.shape, argument.name, " or --batch" if sizes and None not in sizes[1:] else ""
        ))  # fmt: skip
    return sizes


def _named(option: str, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Tensor name -> what a repeatable option gives it. Raises ConfigError for a tensor that is given two."""
    named: dict[str, Any] = {}
    for name, value in pairs:
        if name in named:
            raise ConfigError("%s is given twice for '%s'" % (option, name))
        named[name] = value
    return named


def _shape(text: str) -> tuple[str, list[int]]:
    match = SHAPES.match(text)
    if not match:
        raise ConfigError("--shape is '%s', expected a tensor and its sizes, as x:0=32,64" % text)
    return _tensor(match.group("name")), [int(size) for size in match.group("sizes").split(",") if size]


def _constant(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    try:
        return _tensor(name), json.loads(value if equals else "")
    except ValueError as reason:
        raise ConfigError("--constant is '%s', expected a tensor and its value, as x:0=[1,2]" % text) from reason


def _tensor(name: str) -> str:
    return name if ":" in name else name + ":0"


def _values(checkpoint: str, graph: Any) -> Any:
    """Variable name -> array."""
    from npu_shim.checkpoint import files
    from npu_shim.xla import step_checkpoint

    return step_checkpoint.values(files.find(checkpoint), graph)
