"""Nodes that hand values on or only order others."""

from __future__ import annotations

from typing import Any, Sequence

import jax

from npu_shim.step import guards
from npu_shim.step.graph import Node
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import Effect
from npu_shim.step.values import DEAD, is_known


def _hand_on(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    return inputs[0]


def _all_on(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    return inputs[0] if len(inputs) == 1 else tuple(inputs)


def _nothing(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    return ()


def _switch(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """A Switch where `guards` is not asked: of a loop, whose predicate is known inside."""
    predicate = scope.value(inputs[1])
    if not is_known(predicate):
        raise Unsupported("its predicate is traced, outside of a conditional")
    return (DEAD, inputs[0]) if bool(predicate) else (inputs[0], DEAD)


def _merge(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    return guards.merged(scope, node)


def _value_on(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    return inputs[0]  # of a reference its memory, as Identity does


def _barrier(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """XlaOptimizationBarrier: what computes its outputs is not taken for what computes its inputs."""
    values = [scope.value(raw) for raw in inputs]
    traced = {at: value for at, value in enumerate(values) if not is_known(value)}
    behind = jax.lax.optimization_barrier(traced) if traced else {}
    return tuple(behind.get(at, value) for at, value in enumerate(values))


def _argument(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    raise Unsupported("nothing is given for it")


HANDS_ON = (
    "Identity", "RefIdentity", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration", "LoopCond",
    "PlaceholderWithDefault", "Print",
)  # fmt: skip
NOTHING = (
    "NoOp",
    "ControlTrigger",
    "Assert",
    "PrintV2",
)

RULES = {
    **{op: Effect(_nothing) for op in NOTHING},
    **{op: Effect(_hand_on) for op in HANDS_ON},
    **{op: Effect(_switch) for op in ("Switch", "RefSwitch")},
    **{op: Effect(_merge) for op in ("Merge", "RefMerge")},
    **{op: Effect(_value_on) for op in (
        "StopGradient", "PreventGradient", "Snapshot", "DebugGradientIdentity", "DeepCopy", "CopyHost", "Copy")},
    "IdentityN": Effect(_all_on),
    "XlaOptimizationBarrier": Effect(_barrier),
    "_Arg": Effect(_argument),
    "Placeholder": Effect(_argument),
    "PlaceholderV2": Effect(_argument),
}  # fmt: skip
