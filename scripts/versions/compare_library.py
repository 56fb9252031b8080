"""Compares a library of TensorFlow 1's time with today's as scripts see it: names, parameters, results of odd calls."""

import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

import compare

HERE = pathlib.Path(__file__).resolve().parent
# library -> what it is called; "then": its versions of the time, which Python 3.7 takes, each with what it wants;
# "now": today's, where the environment of the tests has none; "grid": functions that are called with odd arguments;
# "private": names that are left out; "instead": what stands in the place of a name; "renamed": parameters
LIBRARIES = json.loads((HERE / "libraries.json").read_text())
TABLE = HERE.parents[1] / "npu_shim" / "compat" / "python" / "then.json"
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf")


def differences(library, records):
    """All differences between each old version and today's, sorted; `records` is a folder of records that are kept."""
    changes = set()
    for version in LIBRARIES[library]["then"]:
        old = recorded(library, version, records)
        new = recorded(library, "today", records, version)
        changes.update(compare.of_signatures(old["signatures"], new["signatures"]))
        changes.update(of_calls(old["values"], new["values"], set(lines(library))))
    return sorted(changes)


def write(library, records):
    """Writes what the library had, and has no more, for npu-shim run."""
    row = {"title": LIBRARIES[library]["title"], "gone": {}, "modules": {}, "positions": {}, "renamed": {}}
    instead = LIBRARIES[library].get("instead", {})
    for version in LIBRARIES[library]["then"]:  # of the last of them that had it
        old, new = recorded(library, version, records), recorded(library, "today", records, version)
        for kind, name, *_ in compare.of_signatures(old["signatures"], new["signatures"]):
            if kind == "name gone":
                take_lost(row, version, name, old, new, instead)
            elif kind == "by keyword only":
                take_positions(row, name, old, new)
            elif kind == "parameter gone":
                take_renamed(row, name, old, new, LIBRARIES[library].get("renamed", {}))
    for name in set(instead) - set(old["signatures"]):  # what only __getattr__ gave
        module, _, path = name.rpartition(".")
        if not any(path in names.get(module, {}) for names in row["gone"].values()) and module in new["modules"]:
            row["gone"].setdefault(next(iter(LIBRARIES[library]["then"])), {}).setdefault(module, {})[path] = instead[
                name
            ]
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    TABLE.write_text(json.dumps({**table, library: row}, indent=0, sort_keys=True, separators=(",", ":")) + "\n")


def take_lost(row, version, name, old, new, instead):
    """Puts a name that is gone into a row of the table."""
    module, path = placed(name, old)
    if module not in new["modules"]:
        row["modules"][module] = [version, instead.get(module, "")]
        return
    for names in row["gone"].values():
        names.get(module, {}).pop(path, None)
    there = instead.get(name, new["elsewhere"].get(name, ""))
    row["gone"].setdefault(version, {}).setdefault(module, {})[path] = there


def take_positions(row, name, old, new):
    """Puts the parameters of a function that are taken by keyword only today into a row of the table."""
    module, path = placed(name, old)
    had, has = (list(map(first, itertools.takewhile(is_named, side["signatures"][name]))) for side in (old, new))
    if had[: len(has)] == has:
        row["positions"].setdefault(module, {})[path] = had[len(has) :]


def take_renamed(row, name, old, new, renamed):
    """Puts the parameters of a function that have another name today into a row of the table."""
    module, path = placed(name, old)
    had, has = ({first(one) for one in side["signatures"][name]} for side in (old, new))
    today = {one: renamed[one] for one in had - has if renamed.get(one) in has - had}
    if today:
        row["renamed"].setdefault(module, {})[path] = today


def first(parameter):
    """The name of a parameter."""
    return compare.split(parameter)[0]


def is_named(parameter):
    """Whether a parameter is no *args, and not behind one."""
    return not parameter.startswith("*")


def placed(name, record):
    """(module, path in it) of a name: a class and its attribute are one path."""
    module, _, path = name.rpartition(".")
    while module in record["signatures"]:
        module, _, holder = module.rpartition(".")
        path = holder + "." + path
    return module, path


def is_told(difference):
    """Whether `npu-shim run` takes what was, or says which version had it: by the table, or by the error of a call."""
    kind, what, old, new = difference
    if kind == "name gone":
        return any(what == name or what.startswith(name + ".") for name in {**named("gone"), **named("modules")})
    if kind == "parameter gone":
        return set(old.split(", ")) <= set(named("renamed").get(what, ()))
    return what in named("positions") if kind == "by keyword only" else " had it" in new


@functools.lru_cache(maxsize=None)
def named(part):
    """The full names of a part of the table -> what it says of them."""
    rows = [row.get(part, {}) for row in json.loads(TABLE.read_text()).values()]
    if part == "gone":
        rows = [names for row in rows for names in row.values()]
    if part == "modules":
        return {name: said for row in rows for name, said in row.items()}
    return {"%s.%s" % (module, name): said for row in rows for module in row for name, said in row[module].items()}


def lines(library):
    """The lines of LIBRARY.txt."""
    own = HERE / (library + ".txt")
    return own.read_text().splitlines() if own.exists() else []


def of_calls(old, new, own=frozenset()):
    """Calls that are refused now, or give another thing; a function's are told of once, but for those of `own`."""
    seen = set()
    for call, had in old.items():
        has = new.get(call, "")
        kind = "call refused" if has.startswith("!") else "call other"
        error = re.sub(r"'.*?'|\d+", "", has) if kind == "call refused" else ""
        about = (call if call in own else call.split("(")[0], kind, error)
        if had.startswith("!") or equal(had, has) or about in seen:
            continue
        seen.add(about)
        yield compare.Difference(kind, call, had, has)


def equal(old, new):
    """Whether two results are one but for the last digits of their numbers, and whether one is NumPy's or Python's."""
    old, new = (re.sub(r"[<|][fib][148]\(\)\[([^][]*)\]", r"\1", side) for side in (old, new))
    if old == new:
        return True
    if _NUMBER.sub("0", old) != _NUMBER.sub("0", new):
        return False
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new))
    return all(was == now or abs(float(was) - float(now)) <= 1e-3 * max(1.0, abs(float(was))) for was, now in pairs)


def recorded(library, version, records, reference=""):
    """The record of a library in a version of the time, or of today's for the names of such a one."""
    out = pathlib.Path(records) / ("%s %s %s.json" % (library, version, reference))
    if not out.exists():
        tier = "2.15.1" if reference else "1.15.5"
        command = [*compare.interpreter(tier), str(HERE / "record_library.py"), str(out.resolve()), library]
        if reference:
            command += ["--names", str(recorded_path(library, reference, records))]
        own = {"PYTHONPATH": installed(library, (reference and "now") or version, pathlib.Path(records))}
        done = subprocess.run(command, env={**os.environ, **own}, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit("%s\n%s" % (" ".join(command), done.stderr.decode()[-2000:]))
    return json.loads(out.read_text())


def recorded_path(library, version, records):
    """The file of the record of a version of the time."""
    return (pathlib.Path(records) / ("%s %s .json" % (library, version))).resolve()


def installed(library, version, records):
    """A folder with a version of the time in it, or "now" with today's, for PYTHONPATH; "" if nothing is needed."""
    row = LIBRARIES[library]
    wanted = row["now"] if version == "now" else row["then"][version]
    folder = (records / ("%s-%s" % (library, version))).resolve()
    if wanted and not folder.exists():
        tier = "2.15.1" if version == "now" else "1.15.5"
        pip = [*compare.interpreter(tier), "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, *wanted], check=True, stderr=subprocess.DEVNULL)
    return str(folder) if wanted else ""
