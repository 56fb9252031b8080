"""Compares 1.15.5 with another TensorFlow under `npu-shim run`: signatures, shapes, numbers, layers, values.

Prints a table of the differences by class, and each that is neither restored nor explained in kept.json. Only what 1.15
had counts: what is new, or refused by 1.15, is none.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import tiers  # noqa: E402

TOLERANCE = 1e-3
VERSIONS = ("1.15.5", "2.15.1", "2.21.0")
TENSOR = "tensorflow.Tensor"
LIKE_TENSORS = {"tensorflow." + name for name in ("Variable", "SparseTensor", "RaggedTensor", "IndexedSlices")}
LIBRARIES = sorted(json.loads((HERE / "libraries.json").read_text()))
RESULTS = HERE.parents[1] / "npu_shim" / "compat" / "scan" / "results.json"


ROWS = HERE / "kept.json"
# library -> kind -> the differences that fall under rows of kept.json that are "listed": such a row's reason is by
# module, so that another difference under it is open
LISTED = HERE / "kept_names.json"
TOLD = "npu-shim run says which version had it, and what stands in its place"


class Difference(NamedTuple):
    """One difference: its class, the name or expression, what 1.15 has and what the other has."""

    kind: str
    what: str
    old: str
    new: str


def main():
    """Records both sides and prints the comparison; returns 1 if a difference is open."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorflow", choices=VERSIONS[1:], default="2.15.1")
    parser.add_argument("--plain", action="store_true", help="also say how many there are without npu-shim")
    parser.add_argument("--all", action="store_true", help="list the differences that are kept as well")
    parser.add_argument("--results", action="store_true", help="write what functions give, for npu-shim scan")
    parser.add_argument("--records", help="folder in which records stay, and are taken from where they are there")
    parser.add_argument("--library", choices=LIBRARIES, help="compare a library, of its versions of 1.15.5's time")
    parser.add_argument("--keep", action="store_true", help="list the library's differences in kept_names.json")
    parser.add_argument("--write", action="store_true", help="write what the library had, for npu-shim run")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records = pathlib.Path(args.records or folder)
        if args.library:
            import compare_library

            if args.write:
                compare_library.write(args.library, records)
            told = compare_library.is_told
            changes = compare_library.differences(args.library, records)
            if args.keep:
                keep(args.library, [change for change in changes if not told(change)])
            return report(changes, None, args.all, told, listed(args.library))
        if args.results:
            return write_results([recorded(records, version, None, results=True) for version in VERSIONS])
        old = recorded(records, "1.15.5", None)
        new = differences(old, recorded(records, args.tensorflow, "1.15.5"))
        plain = differences(old, recorded(records, args.tensorflow, "1.15.5", plain=True)) if args.plain else None
    return report(new, plain, args.all)


def recorded(folder, version, reference, plain=False, results=False):
    """The record of one TensorFlow."""
    out = (folder / ("plain " * plain + "results " * results + version + ".json")).resolve()
    if not out.exists():
        command = [*interpreter(version), *([] if plain or version == VERSIONS[0] else ["-m", "npu_shim", "run"])]
        command += [str(HERE / "record.py"), str(out), *["--plain"] * plain, *["--results"] * results]
        command += ["--names", str((folder / (reference + ".json")).resolve())] if reference else []
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "NPU_SHIM_LOG": "off"}
        done = subprocess.run(command, cwd=folder, env={**os.environ, **quiet}, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit("%s\n%s" % (" ".join(command), done.stderr.decode()[-2000:]))
    return json.loads(out.read_text())


def write_results(records):
    """Writes the table of classes that functions and methods give, of those that always gave one; returns 0."""
    kinds = {}
    for record in records:
        for name, classes in record["results"].items():
            kinds.setdefault(name, set()).update(classes)
    table = {}
    for name, classes in sorted(kinds.items()):
        if TENSOR in classes and name.split(".")[-2].islower():  # functions take, and give, what is like a tensor too
            classes |= LIKE_TENSORS
        if "" not in classes:
            table.setdefault(" ".join(sorted(classes, key=lambda path: (path != TENSOR, path))), []).append(name)
    RESULTS.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    return 0


def interpreter(version):
    """The Python of a TensorFlow, in the environment that the tests make for it, and its options."""
    tier = next(tier for tier in tiers.TIERS if tier.tensorflow == version)
    trouble = tiers.install(tier)
    if trouble:
        sys.exit(trouble)
    return [str(tier.bin / "python"), "-W", "ignore"]


def differences(old, new):
    """All differences of two records, sorted."""
    changes = [*of_signatures(old["signatures"], new["signatures"]), *of_values(old["values"], new["values"])]
    for part in ("shapes", "numbers"):
        changes += of_results(part, old[part], new[part])
    return sorted([*changes, *of_layers(old["layers"], new["layers"])])


def of_signatures(old, new):
    """Names that are gone, or whose parameters are."""
    for name, had in old.items():
        has = new.get(name)
        if has is None:
            if name.rpartition(".")[0] in new or name.rpartition(".")[0] not in old:  # not all that was in it
                yield Difference("name gone", name, "", "")
        elif isinstance(had, list) and isinstance(has, list):
            yield from of_parameters(name, had, has)


def of_parameters(name, had, has):
    """Parameters that are gone, stand elsewhere, or have another default."""
    old, new = dict(map(split, had)), dict(map(split, has))
    open_ended = any(parameter.startswith("**") for parameter in new)
    lost = [parameter for parameter in old if parameter not in new and not parameter.startswith("*")]
    if lost and not open_ended:
        yield Difference("parameter gone", name, ", ".join(lost), ", ".join(has))
    named = [[parameter for parameter in side if not parameter.startswith("*")] for side in (old, new)]
    by_position = [set(itertools.takewhile(lambda name: name[0] != "*", side)) for side in (old, new)]
    closed = [parameter for parameter in old if parameter in by_position[0] - by_position[1] and parameter in new]
    if closed:
        yield Difference("by keyword only", name, ", ".join(had), ", ".join(has))
    if not lost and not closed and named[1][: len(named[0])] != named[0] and "*args" not in new:
        yield Difference("parameter elsewhere", name, ", ".join(named[0]), ", ".join(named[1]))
    for parameter, default in old.items():
        if parameter in new and default is not None and not same_default(default, new[parameter]):
            was, now = ("%s=%s" % (parameter, value) for value in (default, new[parameter]))
            yield Difference("other default", name, was, now)


def split(text):
    """(Name, default or None) of a parameter's text."""
    name, equals, default = text.partition("=")
    return name, default if equals else None


def same_default(old, new):
    """Whether two defaults are one but for their writing: objects have no other, 0 is 0.0."""
    if new is None:
        return False
    if old == new or (old.startswith("<") and new.startswith("<")):
        return True
    try:
        return float(old) == float(new)
    except ValueError:
        return False


def of_results(part, old, new):
    """Calls that 1.15 took and that now fail, or give less or other than they gave."""
    for what, had in old.items():
        has = new.get(what, "")
        if had.startswith("!") or plain_text(had) == plain_text(has):
            continue
        if has.startswith("!"):
            yield Difference(part + ": refused", what, had, has)
        elif not is_more_known(plain_text(had), plain_text(has)):
            yield Difference(part + ": other", what, had, has)


def plain_text(text):
    """A result without what only its writing has: `Dimension(2)` is 2, None is ?."""
    return re.sub(r"Dimension\((\w+)\)", r"\1", text).replace("None", "?").replace(" ", "").replace(",)", ")")


def is_more_known(old, new):
    """Whether a result is the old one with sizes in place of question marks, or a rank for an unknown one."""
    pattern = re.escape(old).replace(r"\?", r"(\?|\d+)").replace("<unknown>", r"(<unknown>|\([\d?,]*\))")
    return re.fullmatch(pattern, new) is not None


def of_layers(old, new):
    """Variables and collections that are other."""
    for what, had in old.items():
        has = new.get(what)
        if isinstance(had, str) or had == has:
            continue
        if isinstance(has, str):
            yield Difference("layers: refused", what, "", has)
            continue
        for key in sorted(key for key in {*had, *has} if had.get(key) != has.get(key)):
            sides = [", ".join(side.get(key, ())) for side in (had, has)]
            yield Difference("layers: other", "%s | %s" % (what, key), *sides)


def of_values(old, new):
    """Runs that fail or compute something else."""
    for what, had in old.items():
        has = new.get(what)
        if isinstance(had, str) and had.startswith("!"):
            continue
        if isinstance(has, str) and has.startswith("!"):
            yield Difference("values: refused", what, str(had), has)
        elif not close(had, has):
            yield Difference("values: other", what, str(had), str(has))


def close(old, new):
    """Whether numbers in lists are equal but for rounding."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(close, old, new))
    if isinstance(old, float) and isinstance(new, (int, float)):
        return old == new or (old != old and new != new) or abs(old - new) <= TOLERANCE * max(1.0, abs(old))
    return old == new


def row_of(difference, rows):
    """The first row that fits a difference, or None."""
    for row in rows:
        if re.match(row["kind"], difference.kind) and re.search(row["what"], difference.what):
            return row
    return None


def reason_of(difference, rows, names=None):
    """Why a difference stays, or None; `names` are those that are listed, kind -> differences."""
    row = row_of(difference, rows)
    if row is None or (row.get("listed") and difference.what not in (names or {}).get(difference.kind, ())):
        return None
    return row["why"]


def listed(library):
    """The listed differences of a library, kind -> differences."""
    return json.loads(LISTED.read_text()).get(library, {})


def keep(library, changes):
    """Lists the differences of a library that fall under rows whose reason is by module."""
    rows = json.loads(ROWS.read_text())
    names = {}
    for change in changes:
        if (row_of(change, rows) or {}).get("listed"):
            names.setdefault(change.kind, []).append(change.what)
    table = json.loads(LISTED.read_text())
    table[library] = {kind: sorted(set(whats)) for kind, whats in names.items()}
    LISTED.write_text(json.dumps(table, indent=0, sort_keys=True, ensure_ascii=False) + "\n")


def report(changes, plain, everything, is_told=lambda change: False, names=None):
    """Prints the table and the open differences; returns 1 if there is one, else 0."""
    rows = json.loads(ROWS.read_text())
    reasons = {change: TOLD if is_told(change) else reason_of(change, rows, names) for change in changes}
    counts = collections.Counter(change.kind for change in changes)
    before = collections.Counter(change.kind for change in plain or ())
    kept = collections.Counter(change.kind for change in changes if reasons[change])
    columns = ["class", *(["without npu-shim"] if plain is not None else []), "differs", "kept", "open"]
    print("| %s |\n|%s" % (" | ".join(columns), "---|" * len(columns)))
    for kind in sorted({*counts, *before}):
        numbers = [counts[kind], kept[kind], counts[kind] - kept[kind]]
        print("| %s |" % " | ".join(map(str, [kind, *([before[kind]] if plain is not None else []), *numbers])))
    for change, reason in reasons.items():
        if everything or not reason:
            shown = (change.kind, change.what, change.old[:300], change.new[:300])
            print("\n%s: %s\n    1.15: %s\n    now:  %s" % shown)
            print("    kept: %s" % reason if reason else "    open", flush=True)
    return 0 if all(reasons.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
