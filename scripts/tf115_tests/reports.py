"""What the verdicts say: counts of each folder, and the cause of each method that passes on 1.15.5 and not here."""

import collections
import fnmatch
import json
import pathlib
import re
from typing import NamedTuple

CAUSES = pathlib.Path(__file__).resolve().parent / "causes.json"
KINDS = ("kept", "internal", "open")
FILE = "<file>"


class Lost(NamedTuple):
    """A method that passes on 1.15.5 and not here, with its verdict and the row of causes.json that it falls under."""

    file: str
    name: str
    verdict: dict
    kind: str
    cause: str


def counts(result):
    """A result's states and how many methods are in each, in words."""
    states = collections.Counter(verdict["state"] for verdict in result["tests"].values())
    words = ", ".join("%d %s" % (number, state) for state, number in sorted(states.items()))
    return "; ".join(word for word in (words, result["file"]) if word)


def tell(cache, files, reference, variant, args):
    """Prints the table of the folders and of the causes; returns 1 if something is open."""
    passing, lost = compare(cache, files, reference, variant)
    print(by_folder(passing, lost, variant, args.markdown))
    causes = collections.Counter((row.kind, row.cause) for row in lost)
    for (kind, cause), number in sorted(causes.items(), key=lambda item: (item[0][0], -item[1])):
        print("%5d  %-8s  %s" % (number, kind, cause))
    if args.open:
        for row in lost:
            if row.kind == "open":
                print("%s::%s\n    %s: %s" % (row.file, row.name, row.verdict["state"], row.verdict["error"]))
    return int(any(row.kind == "open" for row in lost))


def compare(cache, files, reference, variant):
    """({file: names that pass on the reference}, list of Lost) of the files that have both results."""
    rows = json.loads(CAUSES.read_text())
    passing, lost = {}, []
    for file in files:
        old, new = cache.read(reference, file), cache.read(variant, file)
        if old is None or new is None:
            continue
        passing[file] = [name for name, verdict in old["tests"].items() if verdict["state"] == "pass"]
        for name in passing[file]:
            verdict = verdict_of(new, name)
            if verdict["state"] != "pass":
                lost.append(Lost(file, name, verdict, *cause(rows, file, name, verdict)))
    return passing, lost


def verdict_of(result, name):
    """A method's verdict; that of its class or file where these stopped before it."""
    tests = result["tests"]
    above = [tests[key] for key in tests if key.startswith("setUpClass") and name.split(".")[0] in key]
    missing = {"state": "fail", "error": result["file"] or "no such method", "trace": result.get("trace", "")}
    return tests.get(name) or (above or [missing])[0]


def cause(rows, file, name, verdict):
    """(Kind, cause) of a verdict: those of the first row that fits; the error itself where none does."""
    for row in rows:
        fits = fnmatch.fnmatchcase(file, row.get("file", "*")) and fnmatch.fnmatchcase(name, row.get("method", "*"))
        if fits and re.search(row.get("error", ""), verdict["state"] + ": " + verdict["error"]):
            return row["kind"], row["cause"]
    return "open", "%s: %s" % (verdict["state"], verdict["error"][:150])


def by_folder(passing, lost, variant, markdown):
    """The table of the folders."""
    table = collections.OrderedDict()
    for file, names in passing.items():
        row = table.setdefault(folder_of(file), collections.Counter())
        row["1.15.5"] += len(names)
        row["passes"] += len(names)
    for loss in lost:
        row = table[folder_of(loss.file)]
        row["passes"] -= 1
        row[loss.kind] += 1
    table["all"] = sum(table.values(), collections.Counter())
    heads = ["folder", "pass on 1.15.5", "on " + variant, *KINDS, "share"]
    lines = [[name, *figures(row)] for name, row in table.items()]
    if markdown:
        return "\n".join("| %s |" % " | ".join(map(str, line)) for line in [heads, ["---"] * len(heads), *lines])
    return "\n".join("%-34s%15s%24s%7s%10s%7s%8s" % tuple(line) for line in [heads, *lines])


def figures(row):
    """Counts of a folder: on 1.15.5, here, by cause; the share leaves out what is internal to TensorFlow's tests."""
    counted = row["1.15.5"] - row["internal"]
    share = "%.1f %%" % (100.0 * row["passes"] / counted) if counted else "-"
    return [row["1.15.5"], row["passes"], *(row[kind] for kind in KINDS), share]


def folder_of(file):
    """The folder of a file, as the table names it: contrib/rnn, python/training; keras/layers, tests."""
    above = file.split("/")[:-1]
    return "/".join(above[1:3] or above)


def show(cache, files, variants, method):
    """Prints the verdicts on the methods whose name has these words."""
    for file in files:
        for variant in variants:
            result = cache.read(variant, file)
            names = [name for name in (result["tests"] if result else {}) if method in "%s::%s" % (file, name)]
            if result and result["file"] and method in file:
                names, result["tests"] = [FILE], {FILE: dict(result, state="fail", error=result["file"])}
            for name in names:
                verdict = result["tests"][name]
                print("== %s %s::%s: %s %s" % (variant, file, name, verdict["state"], verdict["error"]))
                print(verdict.get("trace", ""))
    return 0
