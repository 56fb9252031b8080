"""Runs unmodified public NPU scripts from a checkout of theirs and prints what each came to.

    scripts/street --zoo DIR                      all networks that have a recipe
    scripts/street word2vec vision --zoo DIR      those with the word in their name, or of the domain
    scripts/street --list                         the recipes

DIR is a checkout of the collection (the folder with TensorFlow/ in it), which is only read. Each script runs through
`npu-shim run` in a copy of its folder, with small made-up data. A network is whole when it trains and ends as expected,
in the precision mode that it asks for, with finite losses and its checkpoint written.
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import tempfile

import table
from drive import folder_of, run
from judge import OWN_FAULT, WHOLE
from recipe import chosen


def main(argv=None):
    """Runs the recipes; returns 0 when all are whole (or stop by their own fault), 1 if not, 2 for bad input."""
    args = _arguments().parse_args(argv)
    try:
        recipes = chosen(args.networks)
        if args.list:
            print("\n".join("%-16s %s" % (recipe.domain, recipe.name) for recipe in recipes))
            return 0
        if not args.zoo:
            raise LookupError("--zoo DIR, or the environment's NPU_SHIM_ZOO, must name a checkout of the collection")
        zoo = folder_of(args.zoo)
    except LookupError as reason:
        print("street: %s" % reason.args[0], file=sys.stderr)
        return 2
    work = pathlib.Path(args.work or tempfile.mkdtemp(prefix="street-"))
    outcomes = _run_all(recipes, zoo, work, args)
    print("%s\nlogs and copies: %s" % (table.counts(outcomes.values()), work))
    return 0 if all(outcome.result in (WHOLE, OWN_FAULT) for outcome in outcomes.values()) else 1


def _run_all(recipes, zoo, work, args):
    """Runs the recipes, `jobs` at once; writes the files behind each: a run that is cut off keeps what it has."""
    outcomes, known = {}, table.read(args.json) if args.json else {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        running = {pool.submit(run, recipe, zoo, work, args.compare): recipe.name for recipe in recipes}
        for done in concurrent.futures.as_completed(running):
            name = running[done]
            outcomes[name] = known[name] = done.result()
            print(table.line(name, outcomes[name]), flush=True)
            if args.json:
                table.write(args.json, known)
            if args.markdown:
                pathlib.Path(args.markdown).write_text(table.markdown(known))
    return outcomes


def _arguments():
    parser = argparse.ArgumentParser(
        prog="street", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", metavar="NETWORK", nargs="*", help="a part of a network's path, or a domain")
    parser.add_argument("--zoo", metavar="DIR", default=os.environ.get("NPU_SHIM_ZOO"), help="the checkout")
    parser.add_argument("--work", metavar="DIR", help="where copies and logs go; a new temporary folder without")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="scripts at once")
    parser.add_argument("--compare", action="store_true", help="run in float32 as well, for the time of a step")
    parser.add_argument("--json", metavar="FILE", help="write the results; those of other networks in FILE stay")
    parser.add_argument("--markdown", metavar="FILE", help="write the table; with --json of all that FILE has")
    parser.add_argument("--list", action="store_true", help="print the recipes and end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
