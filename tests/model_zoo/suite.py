"""Runs unmodified public scripts from checkouts that you have and prints what each came to.

    scripts/model_zoo --zoo DIR                      the vendor's networks: all that have a recipe
    scripts/model_zoo word2vec vision --zoo DIR      those with the word in their name, or of the domain
    scripts/model_zoo --repositories DIR             public TensorFlow 1 repositories, three ways each
    scripts/model_zoo --libraries                    libraries of the time, installed where this runs
    scripts/model_zoo --list                         the recipes of all three

--zoo's DIR is a checkout of the collection (the folder with TensorFlow/ in it), --repositories' a folder with a
checkout in owner/name for each repository; both are only read. Each script runs through `npu-shim run` in a copy of its
folder, with small made-up data. A network is whole when it trains and ends as expected, with finite losses and its
checkpoint written: in the precision mode that it asks for, or, of repositories that ask for none, in float32, in mixed
precision and with the engine, the losses of these beside those of float32. A library's script is our own and short, as
its tutorial has it; `--ways 1.15.5` runs it on the real TensorFlow 1.15.5 that NPU_SHIM_TF115 names the interpreter of.
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import tempfile

import library_table
import table
import way_table
from drive import folder_of, repositories_of, run, run_way
from judge import OWN_FAULT, WHOLE
from recipe import LIBRARIES, REPOSITORIES, SCRIPTS, ZOO, chosen
from ways import THREE, WAYS, chosen_ways


def main(argv=None):
    """Runs the recipes; returns 0 when all are whole (or stop by their own fault), 1 if not, 2 for bad input."""
    args = _arguments().parse_args(argv)
    try:
        if args.list:
            print("\n".join(_listed(args.networks)))
            return 0
        runs, show = _runs(args)
    except LookupError as reason:
        print("model_zoo: %s" % reason.args[0], file=sys.stderr)
        return 2
    outcomes = _run_all(runs, show, args)
    print("%s\nlogs and copies: %s" % (show.counts(outcomes), args.work))
    return 0 if all(outcome.result in (WHOLE, OWN_FAULT) for outcome in outcomes.values()) else 1


def _listed(words):
    """A line for each recipe with the words, of all collections."""
    lines, refused = [], []
    for collection in (ZOO, REPOSITORIES, LIBRARIES):
        try:
            lines += ["%-16s %s" % (recipe.domain, recipe.name) for recipe in chosen(words, collection)]
        except LookupError as reason:
            refused.append(reason)
    if not lines:
        raise refused[0]
    return lines


def _runs(args):
    """What is to be run: name -> function of the results that are known, which returns an Outcome; and its table."""
    collection = LIBRARIES if args.libraries else REPOSITORIES if args.repositories else ZOO
    if collection is ZOO and not args.zoo:
        raise LookupError("--zoo DIR, or the environment's NPU_SHIM_ZOO, must name a checkout of the collection")
    recipes = chosen(args.networks, collection)
    ways = chosen_ways(args.ways)
    if collection is ZOO:
        folder = folder_of(args.zoo)
    else:
        folder = SCRIPTS if args.libraries else repositories_of(args.repositories, recipes)
        recipes = _there(recipes, folder)
    args.work = work = pathlib.Path(args.work or tempfile.mkdtemp(prefix="model-zoo-"))
    if collection is ZOO:
        return {recipe.name: _of_zoo(recipe, folder, work, args.compare) for recipe in recipes}, table
    runs = {way_table.key(recipe.name, way): _of_way(recipe, folder, work, way) for way in ways for recipe in recipes}
    return runs, library_table if args.libraries else way_table


def _there(recipes, folder):
    """The recipes whose checkouts are in a folder; names the others."""
    absent = [recipe.network for recipe in recipes if not (folder / recipe.network).is_dir()]
    if absent:
        print(
            "model_zoo: %d not run, of which %s has no checkout: %s" % (len(absent), folder, ", ".join(absent)),
            file=sys.stderr,
        )
    return [recipe for recipe in recipes if recipe.network not in absent]


def _of_zoo(recipe, zoo, work, compare):
    return lambda known: run(recipe, zoo, work, compare)


def _of_way(recipe, repositories, work, way):
    def start(known):
        beside = known.get(way_table.key(recipe.name, WAYS[way.beside])) if way.beside else None
        return run_way(recipe, repositories, work, way, beside and beside.losses)

    return start


def _run_all(runs, show, args):
    """Runs them, `jobs` at once; writes the files behind each: a run that is cut off keeps what it has."""
    outcomes, known = {}, table.read(args.json) if args.json else {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        running = {pool.submit(start, known): name for name, start in runs.items()}
        for done in concurrent.futures.as_completed(running):
            name = running[done]
            outcomes[name] = known[name] = done.result()
            print(table.line(name, outcomes[name]), flush=True)
            if args.json:
                table.write(args.json, known)
            if args.markdown:
                pathlib.Path(args.markdown).write_text(show.markdown(known))
    return outcomes


def _arguments():
    parser = argparse.ArgumentParser(
        prog="model_zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", metavar="NETWORK", nargs="*", help="a part of a network's path, or a domain")
    parser.add_argument("--zoo", metavar="DIR", default=os.environ.get("NPU_SHIM_ZOO"), help="the checkout")
    parser.add_argument(
        "--repositories", metavar="DIR", default=os.environ.get("NPU_SHIM_REPOSITORIES"),
        help="run public repositories instead, from their checkouts in DIR/owner/name",
    )  # fmt: skip
    parser.add_argument("--libraries", action="store_true", help="run libraries instead, with scripts of our own")
    parser.add_argument(
        "--ways", metavar="WAYS", default=",".join(way.name for way in THREE),
        help="of repositories and libraries, with commas between them: %s; default %%(default)s" % ", ".join(WAYS),
    )  # fmt: skip
    parser.add_argument("--work", metavar="DIR", help="where copies and logs go; a new temporary folder without")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="scripts at once")
    parser.add_argument("--compare", action="store_true", help="run in float32 as well, for the time of a step")
    parser.add_argument("--json", metavar="FILE", help="write the results; those of other networks in FILE stay")
    parser.add_argument("--markdown", metavar="FILE", help="write the table; with --json of all that FILE has")
    parser.add_argument("--list", action="store_true", help="print the recipes and end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
