"""Checks of numbers in functions, which a session runs with the step: whether they hold is told with its results.

    CheckNumerics(x) in a function     notes whether all of x is finite

Where they do not hold the step's state is as it was before, and the session runs the step: it ends with the error. The
session itself runs the checks of the graph, and a compiled step, behind which there is no session, leaves them all out.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.containers import rooms
from npu_shim.step.counters import CHECKED
from npu_shim.step.graph import Node
from npu_shim.step.masks import cleared
from npu_shim.step.refusals import Refusal
from npu_shim.step.rules.table import Effect
from npu_shim.step.values import is_known

KEY = CHECKED


def _finite(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """CheckNumerics and CheckNumericsV2, which hand their input on."""
    if scope.caller is not None and scope.run.told is not None:
        value = cleared(scope.value(inputs[0]))
        xp = np if is_known(value) else jnp
        rooms.require_where(scope, node, xp.all(xp.isfinite(value)), KEY)
    return inputs[0]


def kept(run: Any, new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The new state of a step, where its checks hold, else the old one."""
    holds = run.cells[KEY]
    if holds is rooms.HOLDS:
        return dict(new)
    for name, value in new.items():
        if np.shape(value) != np.shape(old[name]):
            variable = next(node for node in run.program.every() if node.attrs.get("shared_name") == name)
            raise Refusal(variable, "it gets another shape, in a step that checks numbers in a function")
    return {name: jnp.where(holds, value, old[name]) for name, value in new.items()}


def told(run: Any, fetched: Mapping[str, Any]) -> dict[str, Any]:
    """The fetches of a step, with KEY if something was checked."""
    holds = run.cells[KEY]
    return dict(fetched) if holds is rooms.HOLDS else {**fetched, KEY: holds}


RULES = {"CheckNumerics": Effect(_finite), "CheckNumericsV2": Effect(_finite)}
