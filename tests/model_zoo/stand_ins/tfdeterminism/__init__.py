"""Stands in for tensorflow-determinism, whose package has no files any more: it looks for the TensorFlow it knows."""

import os
import re

import tensorflow as tf


def patch():
    """Sets TF_CUDNN_DETERMINISTIC for TensorFlow 1.14 and 1.15; raises TypeError for another, as it did."""
    if re.match(r"1\.1[45]\.", tf.version.VERSION) is None:
        raise TypeError("tfdeterminism: No patch available for version %s of TensorFlow" % tf.version.VERSION)
    os.environ["TF_CUDNN_DETERMINISTIC"] = "1"
