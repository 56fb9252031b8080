"""npu-shim cost GRAPH --fetches A,B, or npu-shim cost DIR [DIR ...]; with --target for cards that are not there."""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from typing import Any

from npu_shim.cli.graphs.export import add_step_arguments, feeds_of, step_of
from npu_shim.cli.graphs.plan import OPTIONS, names
from npu_shim.options import devices, words
from npu_shim.pjrt import atomic_write, manifest
from npu_shim.pjrt.placement import ALL, Placement, of_cards
from npu_shim.rewriter.errors import ConfigError, one_of

GRAPHS = ("saved_model.pb", "saved_model.pbtxt", "checkpoint")  # files of a folder that stands for a graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("what", metavar="GRAPH|DIR", nargs="+", help="a training graph: as written beside the "
                        "precision mode (needs TensorFlow); or exported steps, side by side (needs JAX)")  # fmt: skip
    add_step_arguments(parser)
    parser.add_argument("--device", metavar="D", help="of a graph: CPU or GPU, what it is for; of "
                        "exported steps: cpu or cuda, which they are compiled for")  # fmt: skip
    parser.add_argument("--target", metavar="CARD,CARD", help="compile for these cards, which need not be "
                        "here: a100, b200, h100, rtx4090, t4, or files that describe some")  # fmt: skip
    parser.add_argument("--devices", metavar="N,N", help="with --target: N such cards run the step together, each a "
                        "part of the batch; figures are those of one card; several numbers are compared")  # fmt: skip
    parser.add_argument("--shard-state", metavar="S", help="with --devices: off (default), optimizer or all: which "
                        "variables each card has a part of")  # fmt: skip
    parser.add_argument("--fit", metavar="CARD", help="find the largest batch that fits on that card, of a graph whose "
                        "feeds have open first dimensions; --batch is tried first")  # fmt: skip
    parser.add_argument("--jax", metavar="PYTHON", help="an interpreter with JAX, for --target and --fit with its CUDA "
                        "plugin; default: this one if it has JAX, else $NPU_SHIM_JAX")  # fmt: skip
    parser.add_argument("--no-compile", action="store_true", help="leave out what only the compiler knows; seconds")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON; - for standard output")


def main(args: argparse.Namespace) -> int:
    """Prints the report; writes what was asked for. Returns the exit status."""
    from npu_shim.pjrt.cost import as_json, as_text

    _check(args)
    values: Any
    if args.fit:
        values, text = _fits(args)
    elif args.target:
        values, text = _on_cards(args)
    else:
        costs = _costs(args)
        values, text = as_json(costs), as_text(costs)
    written = json.dumps(values, indent=1, sort_keys=True) + "\n"
    if args.json and args.json != "-":
        with atomic_write.file(args.json) as f:
            f.write(written.encode("utf-8"))
    print(written if args.json == "-" else text, end="")
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.target and args.no_compile:
        raise ConfigError("--target and --no-compile: what a step costs on a card is what the compiler says; give one")
    if (args.devices or args.shard_state) and not args.target:
        raise ConfigError("--devices and --shard-state are for cards that need not be here; give --target with them")
    if args.target and args.fit:
        raise ConfigError("--fit finds a batch, --target takes the one that is given; give one")
    if args.fit and _is_step(args.what[0]):
        raise ConfigError("'%s' has the batch it was exported with; --fit takes a graph" % args.what[0])
    missing = [path for path in args.what if not os.path.isdir(path)]
    if missing and len(args.what) > 1:
        raise ConfigError("'%s' is not a folder; to compare several things, give exported steps" % missing[0])
    graphs = args.what if len(args.what) == 1 else ()
    for path in args.what:
        if os.path.isdir(path) and not (_is_step(path) or (path in graphs and _has_graph(path))):
            also = ", and has no SavedModel and no checkpoint" if graphs else ""
            raise ConfigError("'%s' is not an exported step: it has no %s%s" % (path, manifest.FILE, also))


def _are_steps(args: argparse.Namespace) -> bool:
    return all(map(_is_step, args.what))


def _is_step(path: str) -> bool:
    return os.path.isfile(os.path.join(path, manifest.FILE))


def _has_graph(path: str) -> bool:
    """Whether a folder is that of a SavedModel or of checkpoints."""
    return any(os.path.exists(os.path.join(path, name)) for name in GRAPHS)


def _costs(args: argparse.Namespace) -> list[Any]:
    if _are_steps(args):
        from npu_shim.pjrt.cost import apart

        return apart.of_folders(args.what, args.device, not args.no_compile, args.jax)
    from npu_shim.export.cost import of_graph

    given = _graph(args)
    return of_graph(*given[:4], not args.no_compile, args.jax, **given[4])


def _graph(args: argparse.Namespace) -> tuple[Any, Any, Any, dict[str, Any], dict[str, Any]]:
    """Returns (source, fetches, feeds, options, other keyword arguments) of `export.cost`'s functions."""
    args.graph = args.what[0]
    source, fetches, feeds, given = step_of(args)
    options = {name: given.pop(name) for name in OPTIONS if name in given}
    return source, fetches, feeds, options, given


def _on_cards(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Returns (values for JSON, text) of what the steps cost on each card."""
    from npu_shim.pjrt.cost import cards, compiling, on_cards

    placements = _placements(args)
    wanted = [cards.card(name) for name in names(args.target)]
    interpreter = compiling.interpreter(args.jax)
    if _are_steps(args):
        return on_cards.report(on_cards.of_folders(args.what, wanted, interpreter, _progress, *placements))
    from npu_shim.export import cost

    source, fetches, feeds, options, given = _graph(args)
    return on_cards.report(
        cost.on_cards(source, fetches, feeds, wanted, interpreter, _progress, placements, **given, **options)
    )


def _placements(args: argparse.Namespace) -> list[Placement]:
    counts = [devices.checked(word, "--devices") for word in names(args.devices or "1")]
    if ALL in counts:
        raise ConfigError("--devices is 'all', and the cards of --target need not be here: give their number")
    share = one_of(args.shard_state or "off", words.SHARD_STATE.known, "--shard-state")
    return [of_cards(int(count), share) for count in dict.fromkeys(counts)]


def _fits(args: argparse.Namespace) -> tuple[Any, str]:
    """Returns (values for JSON, text) of the largest batches that fit on a card."""
    from npu_shim.pjrt.cost import cards, compiling

    card, python = cards.card(args.fit), compiling.interpreter(args.jax)
    from npu_shim.export import fit

    args.batch = args.batch or fit.FIRST
    source, fetches, _, options, given = _graph(args)
    name = ", ".join(str(value) for value in options.values())
    forms = {"as written": fit.FORMS["as written"], name: options} if options else fit.FORMS
    if options and args.recompute is None:
        forms = {**forms, name + ", recompute memory": dict(options, recompute="memory")}
    fits = fit.of_graph(
        source, fetches, partial(feeds_of, source, fetches, args), forms, card, python, args.batch, _progress, **given
    )
    return {"card": card.key, "memory": card.memory, "forms": fit.as_json(fits)}, fit.as_text(card, fits)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
