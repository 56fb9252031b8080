#!/usr/bin/env python
"""Runs random programs at entrances against plain TensorFlow, and shrinks those that show a difference.

    python scripts/fuzz.py engine 17              one seed: its script, what differs, and the smallest script that does
    python scripts/fuzz.py session,clusters 0 --count 1000

Programs and entrances are in tests/tf/fuzz. NPU_SHIM_JAX names a Python with JAX, for the engine and for export.
"""

import argparse
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "tf"))


def main():
    """Reads the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entrances", help="names of fuzz.entrances.ENTRANCES, with commas between")
    parser.add_argument("seed", type=int, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--fault", help="put back one of fuzz.planted.FAULTS")
    parser.add_argument("--shrink", action="store_true", help="shrink what differs; with one seed always")
    asked = parser.parse_args()

    from fuzz import planted, trials

    if asked.fault:
        with planted.FAULTS[asked.fault].plant():
            difference = trials.first_difference(asked.entrances, asked.count)
        print("%s: %s" % (asked.fault, difference or "not found"), flush=True)
        os._exit(0 if difference else 1)  # what the fault has stopped for ever is not waited for
    names, start, failed = asked.entrances.split(","), time.time(), 0
    for seed in range(asked.seed, asked.seed + asked.count):
        if seed > asked.seed and seed % 50 == 0:
            print("%d seeds, %.0f s" % (seed - asked.seed, time.time() - start), flush=True)
        if asked.count == 1:
            print(trials.text(names[0], seed))
        for name, told in trials.all_of(names, seed):
            if told:
                failed += 1
                print("seed %d at %s: %s" % (seed, name, told[0]), flush=True)
                if asked.shrink or asked.count == 1:
                    print(trials.smallest(name, seed), flush=True)
    print("%d seeds at %s: %d differences, %.0f s" % (asked.count, asked.entrances, failed, time.time() - start))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
