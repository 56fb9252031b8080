"""npu-shim scan DIR: the names of TensorFlow and the bridge that a script tree uses, and which of them are missing."""

from __future__ import annotations

import argparse
import collections
import functools
import logging
import os
import platform
import warnings
from typing import Any, Iterable, Mapping, Sequence

from npu_shim.compat.python import pins
from npu_shim.compat.scan import files as scan
from npu_shim.compat.scan import meanings, modules, search_path
from npu_shim.compat.scan import reach as scan_reach
from npu_shim.compat.scan.meanings import CALL
from npu_shim.compat.scan.symbols import is_of_nothing, lacking, public, refused, symbol
from npu_shim.rewriter.errors import ConfigError, nearest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument(
        "path", metavar="DIR", help="a folder of Python files, or a script, to be read with what it imports of its own"
    )
    parser.add_argument("--all", action="store_true", help="list the names that are here as well, as 'ok'")
    parser.add_argument("--unresolved", action="store_true", help=argparse.SUPPRESS)  # what it is without --all
    parser.epilog = (
        "Exit status: 1 a script will stop: a name, or an argument, is missing where it certainly runs, or a module "
        "that it imports (in a folder: that all scripts import); 0 otherwise; 2 nothing to scan. "
        "What is missing elsewhere, behind a condition or in a function that may not be called, is listed as "
        "'perhaps'. Names and the arguments of calls are read; what values do, only a run shows."
    )


def main(args: argparse.Namespace) -> int:
    """Prints the report; returns the exit status."""
    try:
        script = args.path if os.path.isfile(args.path) else None
        files = scan.own_files(script) if script else scan.python_files(args.path)
    except OSError as reason:
        raise ConfigError("scan: '%s' cannot be read: %s" % (args.path, reason.strerror)) from reason
    if not files:
        raise ConfigError("scan: there is no Python file (*.py) in '%s'" % args.path)
    version = _prepare()
    report = examined(files, script)
    for word, problems in (("", report.stops), ("perhaps: ", report.perhaps)):
        for problem in problems:
            print("%s:%d: %s%s" % (problem.path, problem.line, word, problem.reason))
    for path, line, cause in report.unread:
        where = "%s:%d: not Python %s" % (path, line, platform.python_version()) if line else path + ": cannot be read"
        print("%s: %s" % (where, cause))
    for line in [*report.silent, *pins.broken(version)]:
        print(line)
    if args.all:
        print("".join(_listed("ok", report.found) + _listed("optional", report.optional)), end="")
    print(summary(report, len(files), version))
    return 1 if report.will_stop or report.needs else 0


Report = collections.namedtuple("Report", "found optional lost stops perhaps unread silent will_stop needs")


def examined(files: Sequence[str], script: str | None = None) -> Report:
    """Reads files and sorts the names that they use.

    Args:
        files: list of paths.
        script: path of the script that is started; None: any of them may be.

    Returns:
        Report: found and optional are dicts of name -> list of scan.Use; lost is a set of names that are missing, or
        refuse an argument; stops and perhaps are lists of modules.Problem; unread is a list of scan.Unread; silent are
        lines about what has no effect; will_stop is a bool; needs is a sorted list of packages that are not installed,
        without which it stops.
    """
    read = [scan.read(path) for path in files]
    unread = [result for result in read if isinstance(result, scan.Unread)]
    scripts = [result for result in read if not isinstance(result, scan.Unread)]
    searched = search_path.joined(script.search for script in scripts)
    scripts = [script._replace(search=searched) for script in scripts]
    starts = (
        [candidate for candidate in scripts if candidate.path == script] if script else scan_reach.starting(scripts)
    )
    by_place, optional, missing = sort(
        [use for script in scripts for use in script.uses], {other.path: other.assigned for other in scripts}
    )
    refusals = list(_refusals(scripts))
    names = [*map(_missing, missing), *(problem for _, problem in refusals)]
    lost_names = {use.names[0] for use in missing} | {name for name, _ in refusals}
    lost = modules.lost(scripts, scan.python_files(os.path.dirname(script) or ".") if script else files)
    runs = scan_reach.certain(scripts, starts)
    # a folder has scripts for other machines, which need modules that are not here: what all scripts need counts
    every = [scan_reach.certain(scripts, [start]) for start in starts]
    stops = _within(names, runs) + _within(lost, set.intersection(*every) if every else ())
    perhaps = [script for script in (*names, *lost) if script not in stops]
    needed = {file for other in scripts if (other.path, "") in runs for file in scan_reach.imported(other)} | {script}
    will_stop = any(name.path in needed or len(unread) == len(files) for name in unread)
    will_stop = will_stop or any(not problem.needs for problem in stops)
    needs = sorted({problem.needs for problem in stops if problem.needs})
    silent = _without_effect(scripts)
    return Report(by_place, optional, lost_names, sorted(stops), sorted(perhaps), unread, silent, will_stop, needs)


def _within(problems, runs):
    return [problem for problem in problems if problem.certain and (problem.path, problem.function) in runs]


def _missing(use):
    return modules.Problem(use.path, use.line, use.function, use.certain, explained(use.names[0]))


def _refusals(scripts):
    """(name, problem) of calls with names of arguments that do not exist."""
    for call in (call for script in scripts for call in script.calls):
        answers = [refused(name, call.keywords) for name in call.names]
        if all(wrong for wrong, _ in answers):
            wrong, taken = answers[0]
            name = symbol(call.names[0]) or call.names[0]
            reason = "%s takes no argument '%s'%s" % (_short(name), wrong, nearest(wrong, taken))
            yield name, modules.Problem(call.path, call.line, call.function, call.certain, reason)


def _without_effect(scripts):
    """Lines about precision options without effect."""
    names = [(name, use) for script in scripts for use in script.uses for name in use.names]
    bridge = any(name.startswith(("npu_bridge", "hccl")) for name, _ in names)
    says = next((script for script in scripts if script.says_npu_optimizer), None)
    if says is not None and not bridge:
        text = "%s:%d: NpuOptimizer has no effect: no script imports npu_bridge"
        return [text % (says.path, says.says_npu_optimizer)]
    config = next((use for name, use in names if name.endswith(".NPURunConfig")), None)
    readers = (
        "NPUEstimator",
        "npu_run_config_init",
        "npu_config_proto",
        "init_resource",
        "keras_to_npu",
        "NpuOptimizer",
    )
    if config is None or says is not None or any(name.endswith(readers) for name, _ in names):
        return []
    text = "%s:%d: NPURunConfig has no effect: there is no NPUEstimator to read its options"
    return [text % (config.path, config.line)]


def sort(
    uses: Iterable[Any], assigned: Mapping[str, Any] | None = None
) -> tuple[dict[str, list[Any]], dict[str, list[Any]], list[Any]]:
    """Sorts uses by what the installed TensorFlow and bridge have.

    Args:
        uses: iterable of scan.Use.
        assigned: path -> names of the attributes that the file sets.

    Returns:
        (found, optional, missing): found and optional are dicts of name -> list of Use, missing is a list of Use.
        Optional is what is missing, but has an alternative in the script, or a value set by it.
    """
    by_place, optional, missing = collections.defaultdict(list), collections.defaultdict(list), []
    uses = list(uses)
    given = {name for use in uses if use.need == scan.SET for name in use.names if name}
    own = functools.partial(_may_be_set, assigned=assigned or {})
    for use in uses:
        here = [name for name in map(symbol, use.names) if name]
        if here and meanings.root(here[0]) in meanings.UNCOUNTED:
            continue
        if here:
            by_place[here[0]].append(use)
        elif any(map(is_of_nothing, use.names)):  # said where it is made
            continue
        elif use.need in (scan.OPTIONAL, scan.SET) or any(_given(name, given) for name in use.names) or own(use):
            optional[use.names[0]].append(use)
        elif use.need == scan.NEEDED and not _of_nowhere(use):
            missing.append(use)
    return by_place, optional, missing


def _given(name, given):
    parts = name.split(".")
    return any(".".join(parts[:cut]) in given for cut in range(2, len(parts) + 1))


def _may_be_set(use, assigned):
    """Whether the scripts themselves may give an object what it lacks, or hold another object in its place."""
    if CALL not in use.names[0]:
        return False
    lost = lacking(use.names[0])[1]
    others = [names for path, names in assigned.items() if path != use.path and use.through]
    return any(lost in names for names in assigned.values()) or any({use.through, "*"} & names for names in others)


def _of_nowhere(use):
    """Whether a bare name, which star imports could give, is like none of theirs: a mistake of the script itself."""
    if not use.bare:
        return False
    stars = {name.rpartition(".")[0] for name in use.names}
    return not any(nearest(name.rpartition(".")[2], public(star)) for star in stars for name in use.names)


def explained(name: str) -> str:
    """A line about a missing name, with the nearest that exists."""
    from npu_shim.compat.names import names

    if name.startswith("tensorflow.contrib.") and CALL not in name and not names.tensorflow_1():
        target = names.contrib_target(name[len("tensorflow.contrib.") :]) or ""
        if target.startswith("!") or symbol(target.split(".")[0]) is None:  # the table, or a package, is the reason
            return names.explain(name)
    where, part, there = lacking(name)
    if not where:
        return "%s: there is no module '%s'" % (name, part)
    close = nearest(part, there)
    plain = name.startswith("tensorflow.") and CALL not in name
    elsewhere = names.nearest(name) if plain and not close else None
    close = " (did you mean '%s'?)" % elsewhere if elsewhere else close
    said = _short(where + "." + part if CALL in name else name)
    return "%s: there is no '%s' in %s%s" % (said, part, _short(where), close)


def summary(report: Report, files: int, version: str) -> str:
    """The last line: the share that resolves, never rounded up to all, and no share of what will stop."""
    total = len(set(report.found) | report.lost)
    there = total - len(report.lost)
    where = "%d file%s" % (files, "" if files == 1 else "s")
    where += ", %d of them cannot be read" % len(report.unread) if report.unread else ""
    if not total:
        return "no name of TensorFlow, npu_bridge or hccl in " + where
    share = "%.1f %%" % (1000 * there // total / 10) if report.lost else "all, by name; values are not seen"
    told = "it will stop" if report.will_stop else "it needs " + _listing(report.needs) if report.needs else share
    return "%d of %d symbols resolve under TensorFlow %s (%s); %s" % (there, total, version, told, where)


def _listing(words):
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _listed(word, by_name):
    """One line a name: where it is used, with the lines of each file."""
    lines = []
    for name in sorted(by_name):
        places = collections.OrderedDict()
        for use in by_name[name]:
            places.setdefault(use.path, collections.OrderedDict())[str(use.line)] = None
        where = "  ".join("%s:%s" % (path, ",".join(numbers)) for path, numbers in places.items())
        lines.append("%-8s  %-48s  %s\n" % (word, _short(name), where))
    return lines


def _short(name):
    return "tf" + name[len("tensorflow") :] if name.startswith("tensorflow") else name


def _prepare():
    """Installs `tensorflow`, and what libraries have lost, as `npu-shim run` does, without a word; its version."""
    from npu_shim.compat import tensorflow_v1
    from npu_shim.compat.python import aliases

    warnings.simplefilter("ignore")
    tensorflow_v1.install()
    aliases.install()
    aliases.LOG.setLevel(logging.ERROR)  # what an alias stands for is said when the script runs
    import tensorflow as tf

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    return tf.__version__
