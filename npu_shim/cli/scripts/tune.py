"""npu-shim tune [--criterion C] [--loss NAME] [--metric REGEX] [--trials N] [--seed N] [--out FILE] SCRIPT ARGS..."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from typing import Any, Sequence

from npu_shim.cli.scripts import run
from npu_shim.cli.scripts.tuning import criteria, proposal, search, told
from npu_shim.cli.scripts.tuning.progress import Progress
from npu_shim.cli.scripts.tuning.state import SUFFIX, State, digest
from npu_shim.cli.scripts.tuning.trials import Wanted
from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.errors import ConfigError

OUT, TRIALS, SEED = "ops_info.json", 10, 1
LEAST = 2  # trials: float32 and the script's own mode
STOPPED, UNMET = 130, 1  # exit statuses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.usage = "npu-shim tune [OPTIONS] SCRIPT ARGS...   or   npu-shim tune [OPTIONS] -m MODULE ARGS..."
    parser.add_argument(
        "--criterion", action="append", metavar="C", help="what a trial must meet: loss (as float32's within 5 %%), "
        "loss<=0.02, finite, metric>=0.95, metric<=3.2; several must all hold; default: loss",
    )  # fmt: skip
    parser.add_argument(
        run.MODE, metavar="MODE", dest="mode", help="the precision mode that is tuned, as of npu-shim run; default: "
        "that of the script's own configs",
    )  # fmt: skip
    parser.add_argument("--loss", metavar="NAME", help="the tensor of the loss; default: what is called loss or cost")
    parser.add_argument("--metric", metavar="REGEX", help="finds the metric in what the script prints: its first group")
    parser.add_argument("--trials", metavar="N", help="how often the script may be run, at most; default: %d" % TRIALS)
    parser.add_argument("--seed", metavar="N", help="for what the script does not seed itself; default: %d" % SEED)
    parser.add_argument("--out", metavar="FILE", help="the mixlist that is written; default: %s" % OUT)
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file; {trial} in ARGS is the number of the trial")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="the script's own")


def main(argv: Sequence[str]) -> int:
    """Tunes; returns 0 where a list was found or none is needed, 1 where no list met the criteria."""
    parser = argparse.ArgumentParser(prog="npu-shim tune")
    add_arguments(parser)
    args = parser.parse_args(argv)
    run.export_values([(run.MODE, args.mode)] if args.mode else [])
    wanted = _wanted(args)
    state = State(wanted.out + SUFFIX, _key(wanted, args))
    signal.signal(signal.SIGTERM, _stop)  # what ends tune ends its trial
    progress = Progress(wanted.trials, state.resumed)
    try:
        result = search.Search(wanted, state, progress).result()
    except KeyboardInterrupt:
        print("npu-shim tune: stopped; the same command continues with trial %d" % (state.count + 1), file=sys.stderr)
        return STOPPED
    finally:
        progress.close()
    for path, text in result.proposed.texts(wanted.out).items():
        with atomic_write.file(path) as f:
            f.write(text.encode("utf-8"))
    if result.best is not None or not result.failed:
        state.remove()
    print(told.as_text(result, wanted.out, ", ".join(map(str, wanted.criteria))), end="")
    return 0 if result.best is not None or not result.failed else UNMET


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt


def _wanted(args: argparse.Namespace) -> Wanted:
    """The user's wishes, checked before any trial runs."""
    if "--criterion" in args.args:
        raise ConfigError("--criterion follows SCRIPT, after which all belongs to the script: put it before SCRIPT")
    asked = criteria.parsed(args.criterion or ["loss"], args.metric is not None)
    try:
        re.compile(args.metric or "")
    except re.error as reason:
        raise ConfigError("--metric '%s' is not a regular expression: %s" % (args.metric, reason)) from reason
    if not args.module:
        run.require_readable(args.script)
    argv = (*(["-m"] if args.module else []), args.script, *args.args)
    trials, seed = _number(args.trials, TRIALS, LEAST, "--trials"), _number(args.seed, SEED, 0, "--seed")
    return Wanted(argv, asked, args.loss, args.metric, trials, seed, _writable(args.out or OUT))


def _number(text: str | None, default: int, least: int, option: str) -> int:
    if text is None:
        return default
    if not text.isdigit() or int(text) < least:
        raise ConfigError("%s is '%s', expected a whole number, %d or more" % (option, text, least))
    return int(text)


def _writable(out: str) -> str:
    """Returns the path of the output where nothing is in its way."""
    folder = os.path.dirname(os.path.abspath(out))
    if not os.path.isdir(folder):
        raise ConfigError("--out: there is no folder '%s'" % folder)
    if os.path.isdir(out) or not os.access(folder, os.W_OK):
        raise ConfigError("--out: '%s' cannot be written" % out)
    if not out.endswith(".json"):
        raise ConfigError("--out is '%s', expected a file name that ends in .json" % out)
    for path in (out, proposal.beside(out)):
        if os.path.exists(path):
            raise ConfigError("--out: '%s' is there already: remove it, or name another --out" % path)
    return out


def _key(wanted: Wanted, args: argparse.Namespace) -> dict[str, object]:
    """What a state belongs to: all that decides what its trials gave, but for how many there may be."""
    from npu_shim.options.entrances import forced

    script = args.script if args.module else os.path.abspath(args.script)
    return {
        "script": script, "content": "" if args.module else digest(script), "arguments": list(wanted.argv[1:]),
        "criteria": list(map(str, wanted.criteria)), "loss": wanted.loss, "metric": wanted.metric, "seed": wanted.seed,
        "options": forced.of_environment(), "folder": os.getcwd(),
    }  # fmt: skip
