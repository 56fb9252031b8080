"""The rules of the lint, one function each, in the order in which their warnings are told."""

from typing import Any, Callable, Dict, Iterator, Tuple

from ..graph.facts import Facts
from ..planner.decisions import Plan
from ..tables.dtypes import BFLOAT16, FLOAT16
from . import divisions, scales, segments, sums, updates, values
from .seen import Seen, look

Rule = Callable[[Seen], Iterator[str]]
RULES: Dict[str, Rule] = {
    "constants": values.lost_constants,
    "clamped": values.clamped_constants,
    "masks": values.carried_constants,
    "epsilons": divisions.lost_epsilons,
    "products": values.overflows,
    "exponentials": values.rounded_growth,
    "whole numbers": values.whole_numbers,
    "segments": segments.empty_segments,
    "sums": sums.long_sums,
    "variances": sums.variances,
    "updates": updates.low_updates,
    "scales": scales.fixed_scales,
}
BFLOAT16_RULES = ("constants", "clamped", "masks")  # bfloat16 has float32's range, but for its end


def warnings(plan: Plan, protos: Any, facts: Facts) -> Tuple[str, ...]:
    """Finds values that a float16 plan changes by more than rounding, and those beyond bfloat16's largest.

    Args:
        plan: a Plan.
        protos: the tf.NodeDef messages of its nodes, in the order of its view.
        facts: the `facts.Facts` of the graph.

    Returns:
        Tuple of str, each with the node, what happens to it and how to keep it in float32, grouped by rule.
    """
    names = {FLOAT16: tuple(RULES), BFLOAT16: BFLOAT16_RULES}[plan.policy.low]
    seen = look(plan, protos, facts)
    return tuple(text for name in names for text in RULES[name](seen))
