"""npu-shim scan DIR: which names of TensorFlow and the bridge a script tree uses, and which are not here."""

import collections
import functools
import importlib
import inspect
import pkgutil
import platform
import warnings

from npu_shim.compat.scan import files as scan
from npu_shim.compat.scan import reach as scan_reach
from npu_shim.rewriter.errors import ConfigError, nearest


def add_arguments(parser):
    """Adds the arguments of the subcommand."""
    parser.add_argument("path", metavar="DIR", help="a folder of Python files, or one file; nothing in it is run")
    parser.add_argument("--unresolved", action="store_true", help="list only what is missing or cannot be read")
    parser.epilog = (
        "Exit status: 1 a script will stop: a name is missing where it certainly runs; 0 otherwise; 2 nothing to scan. "
        "What is missing elsewhere, behind a condition or in a function that may not be called, is listed as 'perhaps'."
    )


def main(args):
    """Prints the report; returns the exit status."""
    try:
        files = scan.python_files(args.path)
    except OSError as reason:
        raise ConfigError("scan: '%s' cannot be read: %s" % (args.path, reason.strerror)) from reason
    if not files:
        raise ConfigError("scan: there is no Python file (*.py) in '%s'" % args.path)
    version = _prepare()
    report = examined(files)
    if not args.unresolved:
        print("".join(_listed("ok", report.found) + _listed("optional", report.optional)), end="")
    for word, uses in (("", report.stops), ("perhaps: ", report.perhaps)):
        for use in uses:
            print("%s:%d: %s%s" % (use.path, use.line, word, explained(use.names[0])))
    for path, line, reason in report.unread:
        print("%s:%d: not Python %s: %s" % (path, line, platform.python_version(), reason))
    for line in report.silent:
        print(line)
    print(summary(report.found, [*report.stops, *report.perhaps], len(files), len(report.unread), version))
    return 1 if report.will_stop else 0


Report = collections.namedtuple("Report", "found optional stops perhaps unread silent will_stop")


def examined(files):
    """Reads files and sorts what they use.

    Args:
        files: list of paths.

    Returns:
        Report: found and optional are dicts of name -> list of scan.Use; stops and perhaps are lists of Use that are
        missing; unread is a list of scan.Unread; silent are lines about what has no effect; will_stop is a bool.
    """
    read = [scan.read(path) for path in files]
    unread = [result for result in read if isinstance(result, scan.Unread)]
    scripts = [result for result in read if not isinstance(result, scan.Unread)]
    runs = scan_reach.certain(scripts)
    found, optional, missing = sort([use for script in scripts for use in script.uses])
    # in a file that no script imports, the top level is all that counts
    alone = {script.path for script in scripts} if len(files) == 1 else set()
    stops = [u for u in missing if u.certain and ((u.path, u.function) in runs or (u.path in alone and not u.function))]
    perhaps = [use for use in missing if use not in stops]
    needed = {file for script in scripts if (script.path, "") in runs for file in scan_reach.imported(script)}
    lost = [result for result in unread if result.path in needed or len(unread) == len(files)]
    return Report(found, optional, stops, perhaps, unread, _without_effect(scripts), bool(stops or lost))


def _without_effect(scripts):
    """Lines about precision options that nothing reads."""
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


def sort(uses):
    """Sorts uses by what the installed TensorFlow and bridge have.

    Args:
        uses: iterable of scan.Use.

    Returns:
        (found, optional, missing): found and optional are dicts of name -> list of Use, missing is a list of Use.
        Optional is what is not here, but has an alternative in the script, or gets its value from it.
    """
    found, optional, missing = collections.defaultdict(list), collections.defaultdict(list), []
    uses = list(uses)
    given = {name for use in uses if use.need == scan.SET for name in use.names if name}
    for use in uses:
        here = [name for name in map(symbol, use.names) if name]
        if here:
            found[here[0]].append(use)
        elif use.need in (scan.OPTIONAL, scan.SET) or any(_given(name, given) for name in use.names):
            optional[use.names[0]].append(use)
        elif use.need == scan.NEEDED and not _of_nowhere(use):
            missing.append(use)
    return found, optional, missing


def _given(name, given):
    parts = name.split(".")
    return any(".".join(parts[:cut]) in given for cut in range(2, len(parts) + 1))


def _of_nowhere(use):
    """Whether a bare name, which star imports could give, is like none of theirs: the script's own fault."""
    if not use.bare:
        return False
    stars = {name.rpartition(".")[0] for name in use.names}
    return not any(nearest(name.rpartition(".")[2], _public(star)) for star in stars for name in use.names)


@functools.lru_cache(maxsize=None)
def symbol(name):
    """The part of a dotted name that modules and classes show, up to a function or an object; None: it is not here."""
    parts = name.split(".")
    found, done = _member(None, parts[0]), 1
    while done < len(parts) and (inspect.ismodule(found) or inspect.isclass(found)):
        found = _member(found, parts[done], ".".join(parts[: done + 1]))
        done += 1
    return None if found is _NOTHING else ".".join(parts[:done])


_NOTHING = object()


def _member(owner, name, module=None):
    """What `owner.name` gives, or the module of that dotted name, or _NOTHING."""
    try:
        return getattr(owner, name) if owner is not None else importlib.import_module(name)
    except Exception:  # whatever a lazy module raises: the script would get nothing either
        pass
    try:
        return importlib.import_module(module or name) if owner is None or inspect.ismodule(owner) else _NOTHING
    except Exception:
        return _NOTHING


def explained(name):
    """A line about a name that is not here, with the nearest that is."""
    from npu_shim.compat import names

    if name.startswith("tensorflow.contrib.") and not names.tensorflow_1():
        target = names.contrib_target(name[len("tensorflow.contrib.") :]) or ""
        if target.startswith("!") or symbol(target.split(".")[0]) is None:  # the table, or a package, is the reason
            return names.explain(name)
    parts = name.split(".")
    last = next(n for n in range(1, len(parts) + 1) if symbol(".".join(parts[:n])) is None)
    where = ".".join(parts[: last - 1])
    close = nearest(parts[last - 1], _public(where)) if where else ""
    elsewhere = names.nearest(name) if name.startswith("tensorflow.") and not close else None
    close = " (did you mean '%s'?)" % elsewhere if elsewhere else close
    return "%s: there is no '%s' in %s%s" % (_short(name), parts[last - 1], _short(where), close)


def _public(name):
    owner = functools.reduce(lambda o, part: _member(o, part), name.split("."), None)
    folders = [folder for folder in getattr(owner, "__path__", ()) if isinstance(folder, str)]
    files = [module.name for module in pkgutil.iter_modules(folders)]
    return [n for n in (*dir(owner), *files) if not n.startswith("_")]


def summary(found, missing, files, unread, version):
    """The last line: how much resolves, never rounded up to all of it."""
    lost = len({use.names[0] for use in missing})
    total = len(found) + lost
    where = "%d file%s" % (files, "" if files == 1 else "s")
    where += ", %d of them cannot be read" % unread if unread else ""
    if not total:
        return "no name of TensorFlow, npu_bridge or hccl in " + where
    share = "100" if not lost else "%.1f" % (1000 * len(found) // total / 10)
    return "%d of %d symbols resolve under TensorFlow %s (%s %%); %s" % (len(found), total, version, share, where)


def _listed(word, by_name):
    """One line a name: where it is used, with the lines of each file."""
    lines = []
    for name in sorted(by_name):
        places = collections.OrderedDict()
        for use in by_name[name]:
            places.setdefault(use.path, []).append(str(use.line))
        where = "  ".join("%s:%s" % (path, ",".join(numbers)) for path, numbers in places.items())
        lines.append("%-8s  %-48s  %s\n" % (word, _short(name), where))
    return lines


def _short(name):
    return "tf" + name[len("tensorflow") :] if name.startswith("tensorflow") else name


def _prepare():
    """Makes `tensorflow` what `npu-shim run` makes it, quietly; returns its version."""
    from npu_shim.compat import tensorflow_v1

    warnings.simplefilter("ignore")
    tensorflow_v1.install()
    import tensorflow as tf

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    return tf.__version__
