"""Matches stored tensors to variables when a checkpoint comes from another optimizer wrapper. Pure."""

from __future__ import annotations

import re
from typing import Mapping, Optional, Tuple

# contrib and experimental build Adam's powers in a conditional; its number depends on the graph's other ones
IN_COND = re.compile(r"^(?P<scope>(?:.*/)?)cond(?:_\d+)?/(?P<name>beta[12]_power(?:_\d+)?)$")
STATE = re.compile(r"^(?:.*/)?(?P<name>(?:current_)?loss_scale|good_steps|bad_steps|hysteresis_left)(?:_\d+)?$")
GATHERED = re.compile(r"^(?P<owner>.+)/(?P<what>accumulated|accumulated_rows|touched_rows)(?:_\d+)?$")
WINDOW = re.compile(r"^(?:.*/)?accumulated_steps(?:_\d+)?$")  # how many steps AccumulatingOptimizer has gathered
Described = Tuple[str, Optional[Tuple[int, ...]]]  # dtype name, shape
COUNTERS = ("int32", "int64")
FLOATS = ("float32", "float16", "bfloat16")


def canonical(name: str) -> str:
    """Returns a tensor's name under the plain optimizer; for loss-scale state, its name under the npu bridge.

    >>> canonical("gan/cond_1/beta1_power"), canonical("current_loss_scale")
    ('gan/beta1_power', 'loss_scale')
    """
    match = IN_COND.match(name)
    if match:
        return match.group("scope") + match.group("name")
    return re.sub(r"(^|/)current_loss_scale((?:_\d+)?)$", r"\1loss_scale\2", name)


def is_state(name: str) -> bool:
    """Returns whether a tensor is loss-scale state."""
    return STATE.match(name) is not None


def match(
    wanted: Mapping[str, Described], stored: Mapping[str, Described], castable: bool = False
) -> tuple[dict[str, str | None], list[str]]:
    """Returns where each variable's value comes from.

    Args:
        wanted: dict of variable name to (dtype name, shape tuple or None where it may have any).
        stored: dict of tensor name to (dtype name, shape tuple).
        castable: whether float32, float16 and bfloat16 fit each other.

    Returns:
        (dict of variable name to stored name, or to None for loss-scale state and gathered gradients that start anew;
        list of problems).
    """
    by_canonical: dict[str, list[str]] = {}
    for name in sorted(stored):
        by_canonical.setdefault(canonical(name), []).append(name)
    sources: dict[str, str | None] = {}
    problems = []
    for name in sorted(wanted):
        candidates = [name] if name in stored else by_canonical.get(canonical(name), [])
        if not candidates and (is_state(name) or _is_gathered(name, wanted)):
            sources[name] = None
        elif len(candidates) != 1:
            what = "is not in the checkpoint" if not candidates else "could be any of %s" % ", ".join(candidates)
            problems.append("'%s' %s" % (name, what))
        elif not fits(wanted[name], stored[candidates[0]], castable):
            problems.append("'%s' is %s%s, '%s' is %s%s" % (name, *wanted[name], candidates[0], *stored[candidates[0]]))
        else:
            sources[name] = candidates[0]
    return sources, problems


def _is_gathered(name: str, wanted: Mapping[str, Described]) -> bool:
    """Whether a variable is AccumulatingOptimizer's: its counter, or a sum or the touched rows beside a variable."""
    match = GATHERED.match(name)
    types = () if match is None else _gathered_types(match.group("what"), wanted.get(match.group("owner")))
    beside = wanted[name] in types
    return WINDOW.match(name) is not None or (beside and any(map(WINDOW.match, wanted)))


def _gathered_types(what: str, owner: Described | None) -> tuple[Described, ...]:
    """Returns the types that what is gathered of a variable may have."""
    if owner is None:
        return ()
    dtype, shape = owner
    if what == "touched_rows":
        return (("bool", shape if shape is None else shape[:1]),)
    return (owner, ("float32", shape)) if dtype in FLOATS else (owner,)  # narrower gradients are summed in float32


def fits(wanted: Described, stored: Described, castable: bool = False) -> bool:
    """Returns whether a stored tensor can become a variable's value; arguments as of `match`, of one tensor."""
    (dtype, shape), (stored_dtype, stored_shape) = wanted, stored
    pair = {dtype, stored_dtype}
    same = dtype == stored_dtype or pair <= set(COUNTERS) or (castable and pair <= set(FLOATS))
    return same and (shape is None or shape == stored_shape)
