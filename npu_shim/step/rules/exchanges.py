"""What ranks exchange: TensorFlow's collectives, which become XLA's where all ranks run the program together.

A known number that is gathered stays known: ranks whose programs are to meet must agree on it, as on all sizes, so each
is taken to have the same. What was assumed so is noted, and compared before any of the programs runs; where a rank has
another number, the session runs the step. So the lengths of sparse gradients, which ranks tell each other first, are
the sizes of what they gather then.
"""

from __future__ import annotations

from typing import Any, Callable

import jax.numpy as jnp
import numpy as np

from npu_shim.pjrt import exchanges
from npu_shim.step.graph import Node
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import Effect
from npu_shim.step.values import HANDLES, Rows, is_known, is_tensor, traced, whole

FINAL = ("Id", "Div")  # what is done with a sum: nothing, or a division by the number of ranks


def _exchanged(exchange: Callable[..., Any], key: Callable[[Any, Node, Any], int]) -> Callable[..., Any]:
    """The rule of an op whose first input travels."""

    def rule(scope: Any, node: Node, inputs: Any) -> Any:
        value = scope.value(inputs[0])
        if isinstance(value, (Rows, *HANDLES)) or not is_tensor(value):
            raise Unsupported("what ranks exchange must be of a size that is known")
        if scope.serial is not None or scope.most is not None:
            raise Unsupported("ranks meet in it, and it is inside of a loop")
        ranks, group = scope.run.ranks, key(scope, node, inputs)
        if group not in ranks.groups:
            raise Unsupported("ranks meet in it, and its program is one rank's alone")
        return exchange(ranks, node, value, ranks.groups[group])

    return rule


def _reduced(ranks: Any, node: Node, value: Any, members: Any) -> Any:
    if node.attrs["final_op"] not in FINAL or node.attrs["merge_op"] not in exchanges.REDUCTIONS:
        raise Unsupported("it reduces by %s and %s" % (node.attrs["merge_op"], node.attrs["final_op"]))
    total = exchanges.all_reduce(traced(value), node.attrs["merge_op"], members, ranks.size, ranks.devices)
    return total if node.attrs["final_op"] == "Id" else total / jnp.asarray(len(members), total.dtype)


def _gathered(ranks: Any, node: Node, value: Any, members: Any) -> Any:
    if is_known(value) and np.issubdtype(value.dtype, np.integer):
        ranks.assumed.append("%s %s" % (list(members), value.tolist()))
        return np.concatenate([value] * len(members))
    return exchanges.all_gather(traced(value), members, ranks.size, ranks.devices)


def _swapped(ranks: Any, node: Node, value: Any, members: Any) -> Any:
    return exchanges.all_to_all(traced(value), members, ranks.size, ranks.devices)


def _of_attribute(scope: Any, node: Node, inputs: Any) -> int:
    return int(node.attrs["group_key"])


def _of_input(scope: Any, node: Node, inputs: Any) -> int:
    return whole(scope.value(inputs[2]))


RULES = {
    "CollectiveReduce": Effect(_exchanged(_reduced, _of_attribute)),
    "CollectiveGather": Effect(_exchanged(_gathered, _of_attribute)),
    "CollectiveAllToAllV2": Effect(_exchanged(_swapped, _of_input)),
}
