"""Programs of steps whose graph travels to where JAX is, in the place of HLO (`npu_shim.step`); experimental."""

from __future__ import annotations

import platform
from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim import __version__
from npu_shim.export import programs
from npu_shim.export import step as export
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.errors import PlanError
from npu_shim.xla import interpreted
from npu_shim.xla.interpreted import Interpreted


class Refused(PlanError):
    """The graph is not taken.

    Attributes:
        feeds: names of the feeds whose values, if they were known, might make it possible.
        counted: names of Switches by which a counter leaves its loop, whose last value would do as well; or of sums
            over segments, whose number would do.
        why: the reason, without our name in front.
    """

    def __init__(self, text: str, feeds: Any = (), counted: Any = ()) -> None:
        self.feeds, self.counted, self.why = tuple(feeds), tuple(counted), text
        super().__init__(text)


def of(
    prepared: Any, shapes: Any, known: Mapping[str, Any], device: Any, meeting: Any = None,
    counted: Mapping[str, int] | None = None,
) -> tuple[Manifest, Interpreted]:  # fmt: skip
    """Has a device lower a step; returns its Manifest and the step, whose content `device.load` takes.

    Args:
        prepared: `xla.step_function.Prepared` with a packed graph.
        shapes: of the feeds, in their order.
        known: name of a feed -> np.ndarray, for feeds whose values are part of the program.
        device: of the engine.
        meeting: the ranks that run it together, with `ranks` and `groups` as of `cluster.Meeting`; None for none.
        counted: as of `step.interpreter.function`.

    Raises:
        Refused: the interpreter does not take it.
    """
    products = programs.products_of_sessions()
    feeds = [Tensor("feed", feed.name, tuple(shape), feed.dtype.name)
             for feed, shape in zip(prepared.feeds.values(), shapes)]  # fmt: skip
    sizes = {variable.name: variable.shape for variable in prepared.state}
    roles = export.state_roles(sizes)
    state = [Tensor("state", variable.name, sizes[variable.name], variable.dtype.name, roles[variable.name])
             for variable in prepared.state]  # fmt: skip
    asked: dict[str, Any] = {
        "feeds": list(map(_described, feeds)), "state": list(map(_described, state)), "products": products,
        "known": {name: [value.tolist()] for name, value in known.items()},
    }  # fmt: skip
    if counted is not None:
        asked["counted"] = dict(counted)
    if meeting is not None:
        asked["ranks"] = [len(meeting.ranks), {str(key): list(numbers) for key, numbers in meeting.groups.items()}]
    step = interpreted.of(prepared.on(device.platform), shapes)
    answer = device.lower(step.content, asked)
    if answer["refusal"]:
        why = answer["refusal"].partition("npu_shim: ")[2] or answer["refusal"]
        raise Refused(why, answer["feeds"], answer["counted"])
    held = {tensor.name: tensor for tensor in state}
    results = [Tensor("fetch", name, tuple(shape), dtype) for name, dtype, shape in answer["fetches"]]
    described = Manifest(
        arguments=(*feeds, *state),
        results=(*results, *(held[name] for name in answer["updated"])),
        float32_products=products,
        plan=dict(
            export.plan_counts(prepared.plan), recompute=step.recomputation.counts(), attention=step.attention.counts()
        ),
        ranks=() if meeting is None else tuple(meeting.ranks),
        versions={"npu_shim": __version__, "tensorflow": tf.__version__, "python": platform.python_version()},
        attention=dict(step.specs),
    )
    return described, step


def _described(tensor: Tensor) -> list[Any]:
    return [tensor.name, tensor.dtype, list(tensor.shape)]
