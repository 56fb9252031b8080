"""Compares a library of TensorFlow 1's time with today's as scripts see it: names, parameters, results of odd calls."""

import json
import os
import pathlib
import re
import subprocess
import sys

import compare

HERE = pathlib.Path(__file__).resolve().parent
# library -> its versions of the time, which Python 3.7 takes; the first has all names that are asked for
LIBRARIES = {"numpy": ("1.16.6", "1.18.5")}
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf")


def differences(library, records):
    """All differences between each old version and today's, sorted; `records` is a folder of records that are kept."""
    changes = set()
    for version in LIBRARIES[library]:
        old = recorded(library, version, records)
        new = recorded(library, "today", records, version)
        changes.update(compare.of_signatures(old["signatures"], new["signatures"]))
        changes.update(of_calls(old["values"], new["values"]))
    return sorted(changes)


def of_calls(old, new):
    """Calls that are refused now, or give another thing; a function's are told of once."""
    seen = set()
    for call, had in old.items():
        has = new.get(call, "")
        kind = "call refused" if has.startswith("!") else "call other"
        error = re.sub(r"'.*?'|\d+", "", has) if kind == "call refused" else ""
        about = (call.split("(")[0], kind, error)
        if had.startswith("!") or equal(had, has) or about in seen:
            continue
        seen.add(about)
        yield compare.Difference(kind, call, had, has)


def equal(old, new):
    """Whether two results are one but for the last digits of their numbers, and for the width of a text."""
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
        own = {} if reference else {"PYTHONPATH": installed(library, version, pathlib.Path(records))}
        done = subprocess.run(command, env={**os.environ, **own}, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit("%s\n%s" % (" ".join(command), done.stderr.decode()[-2000:]))
    return json.loads(out.read_text())


def recorded_path(library, version, records):
    """The file of the record of a version of the time."""
    return (pathlib.Path(records) / ("%s %s .json" % (library, version))).resolve()


def installed(library, version, records):
    """A folder with a version of the time in it, for PYTHONPATH."""
    folder = (records / ("%s-%s" % (library, version))).resolve()
    if not folder.exists():
        pip = [*compare.interpreter("1.15.5"), "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, "%s==%s" % (library, version)], check=True, stderr=subprocess.DEVNULL)
    return str(folder)
