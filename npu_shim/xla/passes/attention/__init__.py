"""Attention of a step as two calls, forward and backward, for which a program for a GPU has kernels.

    pattern.plan (walk.py, steps.py, terms.py) -> apply.apply
    fusion.fused: all of it, and report.described

XLA no longer recognizes attention, so what has the graph must do it: products, scale, masks, softmax, dropout and their
gradients, as TensorFlow and scripts write them.
"""
