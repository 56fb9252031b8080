"""Says, at the first training step of a job of several ranks, that nothing is exchanged: each rank trains by itself.

`npu-shim launch` starts a script in several workers, which share their gradients only where the script asks for it. One
that knows of no ranks trains as many networks as there are workers, each on its own data, and says nothing.
"""

from __future__ import annotations

import re
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import cluster, ranks
from npu_shim.session import lines
from npu_shim.session.interception import interceptors, training
from npu_shim.session.observers import dump

# what adds up or hands around values of all ranks, each step or each so many; a broadcast only begins alike
EXCHANGES = re.compile(
    r"Collective(Reduce|Gather|AllToAll|Permute)|Nccl(AllReduce|Reduce)|_?Horovod(Allreduce|Allgather)"
)
TEXT = (
    "rank %d of %d: the ranks train apart, each its own network on its own data: nothing in the graph of this training "
    "step exchanges gradients. Wrap the optimizer, by horovod.tensorflow's DistributedOptimizer or npu_bridge's "
    "npu_distributed_optimizer_wrapper, and let each rank read its part of the data; or "
    "run one worker on all devices of the machine: npu-shim run --devices all"
)


def attach(session: tf.Session) -> None:
    """Watches a session of one of several ranks until its first training step; does nothing for one process."""
    if ranks.world_size() > 1:
        interceptors.watch(session, _Watch())


class _Watch:
    """Watches runs until one trains. A session on another process's server shares its variables with others."""

    looks_only = True

    def __init__(self) -> None:
        self._known: set[Any] = set()
        self._is_done = False

    def __call__(self, session: Any, once: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        result = once(fetches, feed_dict, options, run_metadata)
        if not self._is_done:
            self._look(session, fetches, feed_dict or {})
        return result

    def _look(self, session: Any, fetches: Any, feeds: Any) -> None:
        asked = training.run(session.graph, fetches, feeds)
        if asked.key in self._known:
            return
        self._known.add(asked.key)
        if not training.updates(dump.upstream(session.graph, asked.fetched, feeds)):
            return
        self._is_done = True
        foreign = tf.compat.as_str_any(session.sess_str) and not cluster.is_own(session)
        if not foreign and not _exchanges(session.graph):
            lines.once(TEXT % (ranks.world_rank(), ranks.world_size()))


def _exchanges(graph: tf.Graph) -> bool:
    """Whether a graph, or a function of its library, exchanges values of ranks."""
    if any(EXCHANGES.match(op.type) for op in graph.get_operations()):
        return True
    library = graph.as_graph_def().library
    return any(EXCHANGES.match(node.op) for function in library.function for node in function.node_def)
