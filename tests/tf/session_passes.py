"""What the passes of a session promise, asked of graphs that a test has."""

from npu_shim.session import pipeline

PASSES = {step.name: step for step in pipeline.SESSION.passes}


def broken(name, before, after, keep=(), moved=()):
    """What a pass has changed beside what it promises, as sentences.

    Args:
        name: of the pass.
        before: GraphDef that it was given.
        after: GraphDef that it made.
        keep: names of what is fed, fetched or run.
        moved: what "kernel names" has renamed, old name -> new name.
    """
    run = pipeline.Run(before, (), keep, None, True, True, dict(moved))
    return list(PASSES[name].promise.violations(before, after, run))
