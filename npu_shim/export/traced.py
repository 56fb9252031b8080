"""Programs of steps, which a device of the engine lowers: the graph travels to where JAX is (`npu_shim.step`)."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.export import description
from npu_shim.pjrt import arrays
from npu_shim.pjrt.manifest import Manifest
from npu_shim.rewriter.errors import PlanError, unnamed
from npu_shim.session import lines
from npu_shim.xla import interpreted
from npu_shim.xla.interpreted import Interpreted


class Refused(PlanError):
    """The graph is not taken.

    Attributes:
        feeds: names of the feeds whose values, if they were known, might make it possible.
        asked: as of `step.refusals.Refusal`.
        why: the reason, without our name in front.
    """

    def __init__(self, text: str, feeds: Any = (), asked: Any = ()) -> None:
        self.feeds, self.asked, self.why = tuple(feeds), tuple(asked), text
        super().__init__(text)


def of(
    prepared: Any, shapes: Any, known: Mapping[str, Any], device: Any, meeting: Any = None,
    told: Mapping[str, Any] | None = None, cache: str = "", bundles: Iterable[Any] = (),
) -> tuple[Manifest, Interpreted]:  # fmt: skip
    """Has a device lower a step; returns its Manifest and the step, whose content `device.load` takes.

    Args:
        prepared: `xla.step_function.Prepared` with a packed graph.
        shapes: of the feeds, in their order.
        known: name of a feed -> np.ndarray, for feeds whose values are part of the program.
        device: of the engine.
        meeting: the ranks that run it together, with `ranks` and `groups` as of `cluster.Meeting`; None for none.
        told: as of `step.lowering.lowered`.
        cache: path of the folder that keeps lowered steps for later processes, "" for none.
        bundles: feeds that are padded, as `sparse_feeds.Bundle`.

    Raises:
        Refused: the interpreter does not take it.
    """
    products = products_of_sessions()
    taken = description.arguments(prepared, shapes)
    asked = {**taken.asked(), "products": products, "known": {name: [v.tolist()] for name, v in known.items()}}
    asked["narrow"] = arrays.narrow()
    if told is not None:
        asked["told"] = dict(told)
    if bundles:
        asked["counted"] = [list(bundle.names) for bundle in bundles]
    if meeting is not None:
        asked["ranks"] = [len(meeting.ranks), {str(key): list(numbers) for key, numbers in meeting.groups.items()}]
    step = interpreted.of(prepared.on(device.platform), shapes)
    answer = device.lower(step.content, asked, cache)
    if answer["trouble"]:
        lines.once(answer["trouble"])
    if answer["refusal"]:
        raise Refused(unnamed(answer["refusal"]), answer["feeds"], answer["asked"])
    ranks = () if meeting is None else tuple(meeting.ranks)
    return description.described(prepared, step, taken, answer, products, ranks=ranks), step


def products_of_sessions() -> str:
    """What `export.step.export` calls float32_products: "highest" where the script or user switches TF32 off."""
    asked = getattr(tf.config.experimental, "tensor_float_32_execution_enabled", bool)  # TensorFlow 1 has no TF32
    enabled = asked()  # for TensorFlow's kernels
    overridden = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"  # for NVIDIA's libraries; XLA's own kernels ignore it
    return "default" if enabled and not overridden else "highest"
