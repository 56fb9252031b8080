"""Writes the values of the cases into a file: see __init__.py."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from contrib_cases import CASES, run


def main(argv):
    import tensorflow as tf

    if tf.__version__.startswith("1."):
        contrib = tf.contrib
    else:
        tf = tf.compat.v1
        tf.disable_v2_behavior()
        from npu_shim.compat.names import faces

        contrib = faces.Face("")
    tf.logging.set_verbosity(tf.logging.ERROR)
    out = {}
    for name in argv[1:] or sorted(CASES):
        out.update(run(tf, contrib, name))
    np.savez(argv[0], **out)


if __name__ == "__main__":
    main(sys.argv[1:])
