"""Passes alone: text in, text out."""

import module_text
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir import graphdef, text
from npu_shim.rewriter.passes import pipeline, structure
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline


def module_of(source):
    """The module that a text is, which can be written as a GraphDef."""
    module = module_text.parse(source)
    graphdef.write(module, tf.GraphDef).versions.producer = tf.version.GRAPH_DEF_VERSION
    return module


def after(run, source):
    """The text of what a pass, a function, makes of a text."""
    module = module_of(source)
    assert structure.violations(module) == []
    step = Pass("tested", run, "")
    pipeline.run(Pipeline("tests", "runs one pass", (step,)), module, None)
    assert structure.violations(module) == []
    return text.show(module)


def stays(run, source):
    """Asserts that a pass changes nothing in a text."""
    module = module_of(source)
    before, version = text.show(module), module.version
    run(module, None)
    assert (text.show(module), module.version) == (before, version)
