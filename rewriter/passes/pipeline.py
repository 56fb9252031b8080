"""What a pass is, and pipelines: lists of passes, run in order, with the module's structure checked.

    module --pass--> module --pass--> ... --check--> module

A pass takes a module that is valid and leaves one that is (structure.py). A pass with a `promise` is compared with it,
always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable

from ..errors import VerifyError
from ..ir import graphdef
from ..ir.module import Module
from . import structure


@dataclass(frozen=True)
class Promise:
    """What a pass may change; checked wherever it has changed something.

    Attributes:
        reason: why the graph means the same.
        violations: what else it has changed, a sentence each; takes the GraphDef that it was given, the one that it
            leaves, and the context.
    """

    reason: str
    violations: Callable[[Any, Any, Any], Iterable[str]]


def _always(context: Any) -> bool:
    return True


@dataclass(frozen=True)
class Pass:
    """A rewrite of modules.

    Attributes:
        name: what one calls it by, in `npu-shim opt --passes`, errors and dumps.
        run: changes a module in place; takes it and the context that the pipeline's caller gives.
        reason: why it stands where it does in its pipeline.
        needs_ops: it changes nothing in a module that has none of these ops, and does not run; None for any module.
        applies: whether it runs in a context.
        promise: what it may change, for a module that was read from a GraphDef; None where nobody compares.
        repeats: whether it runs again until it changes nothing; its promise is of one run.
    """

    name: str
    run: Callable[[Module, Any], None]
    reason: str
    needs_ops: frozenset[str] | None = None
    applies: Callable[[Any], bool] = _always
    promise: Promise | None = None
    repeats: bool = False

    def is_idle(self, module: Module) -> bool:
        """Whether a module has none of the ops without which the pass changes nothing."""
        return self.needs_ops is not None and self.needs_ops.isdisjoint(module.ops())


@dataclass(frozen=True)
class Pipeline:
    """Passes in the order in which they run.

    Attributes:
        name: what one calls it by.
        purpose: what it makes of what, a sentence.
        passes: the Passes.
        has_promises: whether what its passes promise leaves nothing of the structure to check: it is checked at the
            end, and only with `Watch.after_each`. Between its passes it may not hold.
    """

    name: str
    purpose: str
    passes: tuple[Pass, ...]
    has_promises: bool = False


@dataclass(frozen=True)
class Watch:
    """Who looks on while a pipeline runs.

    Attributes:
        after_each: whether the structure is checked at every pass, not only at the end; passes whose `needs_ops` are
            missing run too, and must change nothing.
        changed: called after each pass that changed something, with its number, from 1, the Pass and the module.
    """

    after_each: bool = False
    changed: Callable[[int, Pass, Module], None] = lambda number, step, module: None


NOBODY = Watch()


def run(pipeline: Pipeline, module: Module, context: Any = None, watch: Watch = NOBODY) -> list[str]:
    """Runs a pipeline on a module, in place.

    Returns:
        The names of the passes that changed something.

    Raises:
        VerifyError: a pass has changed something else than it promises, or broke the structure of the module. Without
            `watch.after_each` the structure is told at the end, of the pipeline as a whole.
    """
    active: list[str] = []
    for number, step in enumerate(pipeline.passes, 1):
        if not step.applies(context):
            continue
        is_idle = step.is_idle(module)
        if is_idle and not watch.after_each:
            continue
        if not _has_changed(step, module, context):
            continue
        if is_idle:
            raise VerifyError(["pass '%s' changed a module that has none of the ops that it needs" % step.name])
        active.append(step.name)
        watch.changed(number, step, module)
        if watch.after_each and not pipeline.has_promises:
            _require_valid(module, None, "pass '%s'" % step.name)
    if active and watch.after_each == pipeline.has_promises:
        _require_valid(module, None if watch.after_each else active, "pipeline '%s'" % pipeline.name)
    return active


def _has_changed(step: Pass, module: Module, context: Any) -> bool:
    """Runs a pass, with its promise checked; returns whether it has changed the module."""
    first, is_done = module.version, False
    while not is_done:
        version, before = module.version, None if step.promise is None else graphdef.write(module)
        _run(step, module, context)
        is_done = module.version == version or not step.repeats
        if step.promise is not None and module.version != version:
            _require_kept(step.name, step.promise.violations(before, graphdef.write(module), context))
    return module.version != first


def _run(step: Pass, module: Module, context: Any) -> None:
    module.author = step.name
    try:
        step.run(module, context)
    finally:
        module.author = ""


def _require_kept(name: str, violations: Iterable[str]) -> None:
    broken = list(violations)
    if broken:
        raise VerifyError("pass '%s': %s" % (name, text) for text in broken)


def _require_valid(module: Module, made_by: Iterable[str] | None, where: str) -> None:
    violations = structure.violations(module, made_by)
    if violations:
        raise VerifyError("%s: %s" % (where, text) for text in violations)
