"""Runs TensorFlow 1.15's own Python tests on 1.15.5 and, under `npu-shim run`, on the TensorFlows of today.

`--suite keras` runs those of the package keras 2.3.1, `--suite keras-2.2.4` of 2.2.4, in environments that have it,
which `--python` names.

What passes on 1.15.5 is what scripts may rely on. Each method that passes there and not here has a cause: a row of
causes.json says by file, method and error (patterns) whether it is kept, or internal to TensorFlow's tests; else it is
open.

  python scripts/tf115_tests --tree MIRROR.git                    run what has no result yet, print the table
  python scripts/tf115_tests --tree MIRROR.git --rerun rnn_cell   run again: files (File::Class.method) with a word
  python scripts/tf115_tests --tree MIRROR.git --failing crf      run again, of these only the methods that fail
  python scripts/tf115_tests --open contrib/rnn                   the open methods of some files, with their errors
  python scripts/tf115_tests --show Class.method                  a method's verdicts, and the ends of its tracebacks
"""

import argparse
import os
import pathlib
import sys

import reports
import results
from suites import SUITES
from tree import Tree

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = "1.15.5"


def main():
    """Runs and prints what the command line asks for; returns 1 if a method that it reports is open."""
    args = arguments()
    listed = pathlib.Path(args.files or HERE / SUITES[args.suite].files)
    files = [line for line in listed.read_text().split() if any(word in line for word in args.only)]
    cache = results.Cache(pathlib.Path(args.cache) / SUITES[args.suite].results)
    on = [version for version in args.on.split(",") if version]
    if args.tree:
        run(args, [(REFERENCE, True), *((version, False) for version in on)], files, cache)
    variants = [results.variant(version, args.option) for version in on]
    if args.show:
        return reports.show(cache, files, [REFERENCE, *variants], args.show)
    return max(reports.tell(cache, files, REFERENCE, variant, args) for variant in variants)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", default=[""], metavar="WORD", help="files whose path has one of these words")
    parser.add_argument("--suite", default="tensorflow", choices=sorted(SUITES), help="whose tests")
    parser.add_argument("--tree", default=os.environ.get("NPU_SHIM_TF115_TREE"), help="git directory with their tree")
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PATH", help="a version's Python")
    parser.add_argument("--files", help="list of paths in the tree, if not the suite's own")
    parser.add_argument("--cache", default=str(HERE.parent.parent / ".tf115_tests"), help="folder that keeps results")
    parser.add_argument("--on", default="2.15.1", help="TensorFlows that run the files under npu-shim: 2.15.1,2.21.0")
    parser.add_argument("--option", action="append", default=[], help="an option of npu-shim run, or NAME=VALUE")
    parser.add_argument("--rerun", action="append", default=[], metavar="WORD", help="run again here what has WORD")
    parser.add_argument("--failing", action="append", default=[], metavar="WORD", help="likewise, what does not pass")
    parser.add_argument("--open", action="store_true", help="list what is open, with its error")
    parser.add_argument("--markdown", action="store_true", help="write the table of the folders as Markdown")
    parser.add_argument("--show", metavar="METHOD", help="the verdicts of a method, with the end of its traceback")
    parser.add_argument("--method-s", type=float, default=60, help="seconds of CPU time for one method")
    parser.add_argument("--file-s", type=float, default=600, help="seconds of CPU time for one file")
    parser.add_argument("--idle-s", type=float, default=45, help="seconds that a method may wait without computing")
    args = parser.parse_args()
    args.only = args.only or [""]
    return args


def run(args, versions, files, cache):
    """Runs on each TensorFlow what has no result, and what is to run again."""
    tree = Tree(args.tree, pathlib.Path(args.cache) / "tree", SUITES[args.suite])
    pythons = dict(word.split("=", 1) for word in args.python)
    tree.write(files)
    blobs = tree.blobs(files)
    limits = {"folder": str(tree.folder), "method_s": args.method_s, "file_s": args.file_s, "idle_s": args.idle_s}
    for version, reference in versions:
        options = [] if reference else args.option
        variant = results.variant(version, options)
        again = results.Again([] if reference else args.rerun, [] if reference else args.failing)
        jobs = [job for job in (cache.job(variant, file, blobs[file], again) for file in files) if job]
        if not jobs:
            continue
        python = pythons.get(version)
        with results.server(version, reference, options, tree.folder, args.suite, python) as answer:
            for number, job in enumerate(jobs, 1):
                verdicts = answer(dict(limits, file=str(tree.folder / job.file), only=job.only))
                kept = cache.keep(variant, job, verdicts, blobs[job.file])
                print("%s %d/%d %s: %s" % (variant, number, len(jobs), job.file, reports.counts(kept)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
