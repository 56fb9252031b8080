#!/usr/bin/env python3
"""Measures the migration of a large checkpoint: speed and peak memory, beside `cp` and beside a Saver.

    python scripts/bench_migrate_checkpoint.py FOLDER [GIB]

Writes a synthetic float32 checkpoint of GIB (default 4) with one tensor of an eighth of it into FOLDER, removes it at
the end, and prints a table in Markdown. Every way runs in a process of its own; the files are in the page cache, and
writing counts until they are on disk. Peak memory is that of the process less what it had after importing.
"""

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time

MIB = 1 << 20


def shapes(gib):
    """Returns name -> float32 shape: one tensor of an eighth, half in 32 MiB tensors, the rest in 1 MiB ones."""
    left = int(gib * 1024)
    sizes = [left // 8] + [32] * (left // 2 // 32)
    sizes += [1] * (left - sum(sizes))
    return {"tensor_%04d" % i: [size * 256, 1024] for i, size in enumerate(sizes)}


def create(folder, gib):
    """Writes the checkpoint, one tensor at a time."""
    import numpy as np

    from npu_shim.checkpoint import files

    rng = np.random.Generator(np.random.PCG64(0))
    writer = files.Writer(os.path.join(folder, "source"))
    for name, shape in shapes(gib).items():
        writer.add(name, rng.random(shape, np.float32) - np.float32(0.5), "float32")
    writer.finish()
    writer.publish("{}")
    writer.close()


def migrate(folder, gib, verify=True):
    """Migrates to float16."""
    import npu_shim

    npu_shim.migrate_checkpoint(
        os.path.join(folder, "source"), os.path.join(folder, "migrated"), "float16", verify=verify, overwrite=True
    )


def migrate_unverified(folder, gib):
    """Migrates to float16 without reading the result again."""
    migrate(folder, gib, verify=False)


def through_a_saver(folder, gib):
    """Restores everything into float16 variables of one session and saves them."""
    import tensorflow.compat.v1 as tf

    import npu_shim

    with tf.Graph().as_default(), tf.Session() as session:
        for name, shape in shapes(gib).items():
            tf.get_variable(name, shape, tf.float16, tf.zeros_initializer())
        saver = tf.train.Saver(builder=npu_shim.CastFromFloat32SaverBuilder())
        saver.restore(session, os.path.join(folder, "source"))
        saver.save(session, os.path.join(folder, "saved"), write_meta_graph=False)
    os.sync()


WAYS = {f.__name__: f for f in (create, migrate, migrate_unverified, through_a_saver)}


def child(way, folder, gib):
    """Runs one way in this process and prints its seconds, and its peak memory above the imports in MiB."""
    import tensorflow.compat.v1 as tf

    from npu_shim.checkpoint import migrate as _  # noqa: F401  (imports are not part of the measurement)

    tf.logging.set_verbosity(tf.logging.ERROR)
    before = resident()
    begun = time.time()
    WAYS[way](folder, gib)
    seconds = time.time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak": peak - before, "imports": before, "tensorflow": tf.__version__}))


def resident():
    """Returns the memory of this process in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def measure(way, folder, gib):
    """Runs one way in a process of its own and returns what `child` prints."""
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--child", way, folder, str(gib)],
        stdout=subprocess.PIPE,
        check=True,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
    )
    return json.loads(done.stdout.decode().splitlines()[-1])


def copy(folder):
    """Returns the seconds that `cp` and a sync of the source take."""
    begun = time.time()
    sources = [os.path.join(folder, f) for f in os.listdir(folder) if f.startswith("source")]
    os.makedirs(os.path.join(folder, "copy"))
    subprocess.check_call(["cp", *sources, os.path.join(folder, "copy")])
    os.sync()
    return time.time() - begun


def main(folder, gib):
    """Prints the table."""
    folder = os.path.join(folder, "bench_migrate_checkpoint")
    os.makedirs(folder)
    try:
        measure("create", folder, gib)
        rows = [("cp", copy(folder), None)]
        for way in ("migrate", "migrate_unverified", "through_a_saver"):
            cost = measure(way, folder, gib)
            rows.append((way, cost["seconds"], cost["peak"]))
    finally:
        shutil.rmtree(folder)
    largest = 4 * max(a * b for a, b in shapes(gib).values()) / MIB
    print("date: %s" % time.strftime("%Y-%m-%d"))
    print("machine: %s, %d CPUs, %s" % (platform.machine(), os.cpu_count(), platform.system()))
    print("versions: Python %s, TensorFlow %s" % (platform.python_version(), cost["tensorflow"]))
    print(
        "checkpoint: %g GiB float32 in %d tensors, the largest %d MiB (its needs: %d MiB read and %d MiB cast)"
        % (gib, len(shapes(gib)), largest, largest, largest / 2)
    )
    print("\n| way | seconds | MB/s of the source | peak memory above imports, MiB |\n| --- | --- | --- | --- |")
    for way, seconds, peak in rows:
        speed = gib * 1024 * MIB / 1e6 / seconds
        print("| %s | %.1f | %.0f | %s |" % (way, seconds, speed, "-" if peak is None else "%.0f" % peak))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 4)
