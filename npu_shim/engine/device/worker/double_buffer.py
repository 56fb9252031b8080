"""The values of variables in shared memory, where they survive the worker.

Each variable has two places. One holds its kept value, the other one takes the next. When a step is complete, and all
its values are copied, both processes turn to the other places. A worker that dies before leaves the kept values whole.

Each turn begins a new generation. Every message names the one that its sender is at: two sides that are not at the same
one would take each other's next values for kept ones.
"""

from __future__ import annotations

from typing import Any, Iterable, Sequence

from npu_shim.engine.device.worker.memory import Block, Tensor
from npu_shim.pjrt.arrays import size_of


class DoubleBuffer:
    """One side's view of the kept values; the other side makes the same calls in the same order.

    Attributes:
        generation: how often it has turned to other places.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._tensors: dict[str, Tensor] = {}
        self._places: dict[str, tuple[Any, Any]] = {}
        self._now: dict[str, int] = {}  # name -> which of its places holds the kept value

    def lacks(self, tensor: Tensor) -> bool:
        """Whether a variable has no place here, or one of another dtype or shape."""
        return self._tensors.get(tensor.name) != tensor

    @staticmethod
    def size_of(tensors: Iterable[Tensor]) -> int:
        """Bytes of a block for `add`."""
        return 2 * size_of(tensors)

    def extended(self, block: Block, tensors: Sequence[Tensor]) -> DoubleBuffer:
        """Returns a view that has places in a block for these variables too; this one stays as it is."""
        both = block.arrays(tensors), block.arrays(tensors, size_of(tensors))
        other = DoubleBuffer()
        other.generation = self.generation
        other._tensors = {**self._tensors, **{tensor.name: tensor for tensor in tensors}}
        other._places = {**self._places, **{t.name: (both[0][t.name], both[1][t.name]) for t in tensors}}
        other._now = {**self._now, **{tensor.name: 0 for tensor in tensors}}
        return other

    def value(self, name: str) -> Any:
        """The kept value, an array in shared memory."""
        return self._places[name][self._now[name]]

    def next(self, name: str) -> Any:
        """The place of the next value, an array in shared memory."""
        return self._places[name][1 - self._now[name]]

    def swap(self, names: Iterable[str]) -> None:
        """Makes the next values of these variables the kept ones."""
        self.generation += 1
        for name in names:
            self._now[name] = 1 - self._now[name]
