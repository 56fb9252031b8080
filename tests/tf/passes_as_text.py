"""Passes alone: text in, text out."""

from npu_shim.rewriter.ir import text
from npu_shim.rewriter.passes import pipeline, structure
from npu_shim.rewriter.passes.pipeline import Pass, Pipeline
from npu_shim.xla.pipeline import PIPELINES, Context

PASSES = {step.name: step.run for line in PIPELINES for step in line.passes}


def after(run, source, **context):
    """The text of what a pass (its name or its function) makes of a text."""
    module = text.parse(source)
    assert structure.violations(module) == []
    step = Pass("tested", PASSES.get(run, run), "")
    pipeline.run(Pipeline("tests", "runs one pass", (step,)), module, Context(**context))
    assert structure.violations(module) == []
    return text.show(module)


def stays(run, source, **context):
    """Asserts that a pass changes nothing in a text."""
    module = text.parse(source)
    before, version = text.show(module), module.version
    PASSES.get(run, run)(module, Context(**context))
    assert (text.show(module), module.version) == (before, version)
