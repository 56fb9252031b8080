"""A step's graph as planning sees it. No TensorFlow."""

from __future__ import annotations

import collections
import functools
from typing import Callable, Iterable, NamedTuple, Tuple

from npu_shim.xla.passes.rematerialization import table

Tensor = Tuple[int, int]  # place of the node, number of its output


class Result(NamedTuple):
    """A node's output: name of its dtype, and its sizes, None if they are not known."""

    dtype: str
    sizes: tuple[int, ...] | None


class Node(NamedTuple):
    """A node.

    Attributes:
        name: in the graph.
        op: its type.
        inputs: Tensors.
        waits: places of the nodes behind its control inputs.
        flops: floating-point operations of a product where it may run again, else 0.
    """

    name: str
    op: str
    inputs: tuple[Tensor, ...]
    waits: tuple[int, ...]
    flops: int = 0


class Step:
    """Nodes in topological order, and where each stands.

    The stage of a node is the number of products on the longest path to it: a clock by which all kernels of a step run.

    Attributes:
        nodes: tuple of Node; a place is a position in it.
        results: place -> Results of its outputs; asked only of the nodes that a plan looks at.
        small: places of the products that count as cheap: they begin no stage.
        stages: of each place.
        times: of each place: the stage in which it is computed, which for a cheap op is that of its first reader.
        readers: Tensor -> places of the nodes that take it.
        middle: the last stage of the forward pass: the one over which most bytes are kept for a later stage.
        kept: those bytes.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        results: Callable[[int], tuple[Result, ...]],
        small: frozenset[int] = frozenset(),
    ) -> None:
        self.nodes, self.small = nodes, small
        self.results = functools.lru_cache(maxsize=None)(results)
        self.stages: list[int] = []
        self.readers: dict[Tensor, list[int]] = collections.defaultdict(list)
        for place, node in enumerate(nodes):
            before = [self.stages[source] for source, _ in node.inputs]
            before += [self.stages[source] for source in node.waits]
            self.stages.append(max(before, default=0) + self.begins_stage(place))
            for tensor in dict.fromkeys(node.inputs) if len(node.inputs) > 1 else node.inputs:
                self.readers[tensor].append(place)
        self.times = self._times()
        self.middle, self.kept = self._middle()

    def begins_stage(self, place: int) -> bool:
        """Whether a node is a product or a call whose result is kept."""
        return self.nodes[place].op in table.STAGES and place not in self.small

    def op(self, place: int) -> str:
        """The type of a node."""
        return self.nodes[place].op

    def bytes(self, tensor: Tensor) -> int:
        """Bytes of a tensor, 0 if they are not known."""
        place, port = tensor
        result = self.results(place)[port]
        if result.sizes is None:
            return 0
        count = table.SIZES.get(result.dtype, 0)
        for size in result.sizes:
            count *= size
        return count

    def traffic(self, place: int) -> int:
        """Bytes that a node reads and writes as a kernel of its own."""
        results = [(place, port) for port in range(len(self.results(place)))]
        return sum(map(self.bytes, [*self.nodes[place].inputs, *results]))

    def depends(self, place: int, others: Iterable[int]) -> bool:
        """Whether a node depends on one of others."""
        wanted = set(others)
        first, ahead, seen = min(wanted), [place], set()
        while ahead:
            number = ahead.pop()
            if number in wanted:
                return True
            if number not in seen and number > first:  # what a node takes has an earlier place
                seen.add(number)
                ahead += [source for source, _ in self.nodes[number].inputs]
                ahead += self.nodes[number].waits
        return False

    def _times(self) -> list[int]:
        times = list(self.stages)
        read_by: dict[int, list[int]] = collections.defaultdict(list)
        for (place, _), readers in self.readers.items():
            if self.nodes[place].op in table.ELEMENTWISE:
                read_by[place] += readers
        for place in sorted(read_by, reverse=True):
            times[place] = max(times[place], min(times[r] - self.begins_stage(r) for r in read_by[place]))
        return times

    def _middle(self) -> tuple[int, int]:
        change: dict[int, int] = collections.defaultdict(int)
        for tensor, readers in self.readers.items():
            first, last = self.times[tensor[0]] + 1, max(self.times[reader] for reader in readers)
            if first < last and self.op(tensor[0]) not in table.GIVEN:
                change[first] += self.bytes(tensor)
                change[last] -= self.bytes(tensor)
        best, now, middle = 0, 0, 0
        for stage in sorted(change):
            now += change[stage]
            if now > best:
                best, middle = now, stage
        return middle, best
