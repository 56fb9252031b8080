"""What is said of a step's program: its Manifest, the roles of its variables, the counts of its plan."""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim import __version__
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.planner import report


@dataclass(frozen=True)
class Arguments:
    """What a step's program takes.

    Attributes:
        feeds: Tensors, in order.
        state: Tensors of the variables, in order.
    """

    feeds: tuple[Tensor, ...]
    state: tuple[Tensor, ...]

    def asked(self) -> dict[str, Any]:
        """They as `step.lowering.lowered` takes them."""
        return {"feeds": [*map(_described, self.feeds)], "state": [*map(_described, self.state)]}


def arguments(prepared: Any, shapes: Sequence[Any]) -> Arguments:
    """Returns the Arguments of a step.

    Args:
        prepared: `xla.step_function.Prepared`.
        shapes: of the feeds, in their order.
    """
    feeds = [Tensor("feed", feed.name, tuple(shape), feed.dtype.name)
             for feed, shape in zip(prepared.feeds.values(), shapes)]  # fmt: skip
    sizes = {variable.name: variable.shape for variable in prepared.state}
    roles = state_roles(sizes)
    held = [Tensor("state", v.name, sizes[v.name], v.dtype.name, roles[v.name]) for v in prepared.state]
    return Arguments(tuple(feeds), tuple(held))


def described(
    prepared: Any, step: Any, taken: Arguments, answer: Mapping[str, Any], products: str, **more: Any
) -> Manifest:
    """Returns the Manifest of a step's program, without the files' hashes.

    Args:
        prepared: `xla.step_function.Prepared`.
        step: its `xla.interpreted.Interpreted`.
        taken: its Arguments.
        answer: `step.lowering.Lowered.answer()`.
        products: its float32 products, "highest" or "default".
        **more: other attributes of the Manifest.
    """
    held = {tensor.name: tensor for tensor in taken.state}
    feeds = [replace(feed, dtype=answer["narrow"].get(feed.name, feed.dtype)) for feed in taken.feeds]
    fetched = [Tensor("fetch", name, tuple(shape), dtype) for name, dtype, shape in answer["fetches"]]
    counts = {"recompute": step.recomputation.counts(), "attention": step.attention.counts()}
    return Manifest(
        arguments=(*feeds, *taken.state),
        results=(*fetched, *(held[name] for name in answer["updated"])),
        float32_products=products,
        plan=dict(plan_counts(prepared.plan), **counts),
        versions={"npu_shim": __version__, "tensorflow": tf.__version__, "python": platform.python_version()},
        attention=dict(step.specs),
        **more,
    )


def _described(tensor: Tensor) -> list[Any]:
    return [tensor.name, tensor.dtype, list(tensor.shape)]


def plan_counts(plan: Any) -> dict[str, Any]:
    """Returns the summary of a Plan with how many slots each reason decided; {} for None."""
    if plan is None:
        return {}
    counts = {name: value for name, value in report.summary(plan).items() if value is not None}
    reasons = Counter(decision.reason.value for decision in plan.decisions())
    return dict(counts, reasons=dict(sorted(reasons.items())), policy=plan.policy.name)


def state_roles(shapes: Mapping[str, Any]) -> dict[str, str]:
    """Returns a role for every variable, by its name and shape.

    "optimizer" is what is named below another variable of its shape ("w/Adam" and "w"), "other" what has one value
    only, "parameter" the rest.

    Args:
        shapes: variable name -> shape.
    """
    return {name: _role(name, shape, shapes) for name, shape in shapes.items()}


def _role(name: str, shape: Any, shapes: Mapping[str, Any]) -> str:
    owner = name.rpartition("/")[0]
    while owner:
        if shapes.get(owner) == shape:
            return "optimizer"
        owner = owner.partition("/")[2]  # a slot below a scope of the optimizer's: "training/w/Adam" of "w"
    return "parameter" if shape not in ((), (1,)) else "other"
