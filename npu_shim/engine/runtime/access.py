"""What a run of the session does to variables, as far as steps on the device must know it. No TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Mapping

from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.partition.nodes import Node

NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Access:
    """The variables that a run of the session reads and writes.

    Attributes:
        touched: names of the variables that it reads or writes.
        written: of those that it may write.
        late: of those that it reads behind an op that may wait, when steps of other threads may have written them.
        blocks: whether it holds an op that may wait for what other threads do: a function of the script, a queue.
        unknown: whether it may do all of this to any variable.
    """

    touched: frozenset[str] = NONE
    written: frozenset[str] = NONE
    late: frozenset[str] = NONE
    blocks: bool = False
    unknown: bool = False

    def excludes(self, touched: Collection[str], written: Collection[str]) -> bool:
        """Whether no step on the device that touches and writes these variables may overlap with the run."""
        return self.unknown or not self.written.isdisjoint(touched) or not self.late.isdisjoint(written)


UNKNOWN = Access(blocks=True, unknown=True)


def of(
    nodes: Mapping[str, Node], taken: Mapping[str, tuple[frozenset[str], frozenset[str]]], blocking: Collection[str]
) -> Access:
    """Returns the Access of a run.

    Args:
        nodes: name -> Node, for all nodes that the run needs; of each, name and inputs count.
        taken: name of a node -> (variables that it takes, variables that it writes).
        blocking: names of the nodes that may wait for what happens outside of the run.
    """
    touched = [taken[name] for name in nodes if name in taken]
    behind = walks.downstream(nodes, blocking) if blocking and touched else set()
    late = [taken[name][0] for name in behind if name in taken]
    return Access(
        NONE.union(*(names for names, _ in touched)), NONE.union(*(names for _, names in touched)),
        NONE.union(*late), bool(blocking),
    )  # fmt: skip
