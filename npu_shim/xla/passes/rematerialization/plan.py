"""Decides what is computed again: for each stage of the forward pass, what is kept of it for the backward pass.

    step.Step -> late uses -> groups of cheap nodes -> cut -> Region, from the last stage to the first

"auto" computes elementwise chains again where that makes the kernels of the forward and of the backward pass move fewer
bytes. "memory" goes on: reductions, normalisation and small batched products too, and what a product reads.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Mapping

from npu_shim.rewriter.graph.walks import reached
from npu_shim.xla.passes.rematerialization import cut, table
from npu_shim.xla.passes.rematerialization.step import Step, Tensor

MORE_BYTES, MORE_FLOPS = 0.10, 0.03  # what "memory" may cost, as shares of the step's
PRICE = 1 / 16  # a byte moved again, in bytes kept
SMALL = 1 / 256  # a value of that share of another's bytes is small beside it
WORTHWHILE = 1 / 4096  # a region saves at least that share of what the step keeps


@dataclass(frozen=True)
class Region:
    """Nodes of one stage that run again in the backward pass.

    Attributes:
        copied: places of the nodes.
        kept: floating-point Tensors of the forward pass that the copies start from.
        uses: (place of a reader, Tensor) for what takes a copy's result from now on.
        trigger: Tensor of the backward pass before which the copies do not run.
        saved: bytes less to keep.
        moved: bytes more to move, at most.
        flops: floating-point operations of products more.
    """

    copied: tuple[int, ...]
    kept: tuple[Tensor, ...]
    uses: tuple[tuple[int, Tensor], ...]
    trigger: Tensor
    saved: int
    moved: int
    flops: int


def plan(step: Step, mode: str) -> tuple[Region, ...]:
    """Returns the Regions of a step, those that save most first.

    Args:
        step: step.Step; for "memory" with its `small` products.
        mode: "auto" or "memory".
    """
    regions = _Planner(step, mode == "memory").regions()
    least = step.kept * WORTHWHILE
    regions = sorted((r for r in regions if r.saved > least), key=lambda r: (-r.saved, r.copied))
    return tuple(_within_budget(step, regions) if mode == "memory" else regions)


def _within_budget(step: Step, regions: list[Region]) -> list[Region]:
    """The regions that save most for what they move, as far as that may go."""
    bytes_left = MORE_BYTES * sum(step.traffic(p) for p in range(len(step.nodes)) if step.op(p) not in table.LIGHT)
    flops_left = MORE_FLOPS * sum(node.flops for node in step.nodes)
    taken = []
    for region in sorted(regions, key=lambda r: (r.moved / r.saved, r.copied)):
        if region.moved <= bytes_left and region.flops <= flops_left:
            bytes_left, flops_left = bytes_left - region.moved, flops_left - region.flops
            taken.append(region)
    return [region for region in regions if region in taken]


class _Planner:
    def __init__(self, step: Step, for_memory: bool) -> None:
        self._step, self._for_memory = step, for_memory
        self._late = self._late_uses()
        self._forced: set[Tensor] = set()  # kept because a later stage starts from it

    def regions(self) -> list[Region]:
        regions = []
        for group in self._groups():
            region = self._region(group)
            if region is not None:
                regions.append(region)
                self._forced.update(region.kept)
        return regions + (self._variables() if self._for_memory else [])

    def _late_uses(self) -> dict[Tensor, list[int]]:
        """Tensor of the forward pass -> its readers in the backward pass."""
        step = self._step
        late: dict[Tensor, list[int]] = {}
        for tensor, readers in step.readers.items():
            time = step.times[tensor[0]]
            if time <= step.middle:
                after = [reader for reader in readers if step.times[reader] > max(step.middle, time + 1)]
                if after:
                    late[tensor] = after
        return late

    def _served(self, tensor: Tensor) -> list[int]:
        """The late readers that take a copy's result; the others make the value stay."""
        op, readers = self._step.op, self._late.get(tensor, ())
        return [r for r in readers if op(r) in table.FUSED or (self._for_memory and op(r) not in table.CLOSED)]

    def _is_cheap(self, tensor: Tensor) -> bool:
        place, port = tensor
        node = self._step.nodes[place]
        if port or not self._step.bytes(tensor):
            return False
        more = node.op in table.REDUCTIONS | table.NORMALISED or place in self._step.small
        return (node.op in table.ELEMENTWISE and len(self._step.results(place)) == 1) or (self._for_memory and more)

    def _groups(self) -> list[list[Tensor]]:
        """Connected cheap tensors of one stage that lead to late uses, later stages first."""
        step = self._step
        wanted: dict[Tensor, list[Tensor]] = {}
        ahead = [tensor for tensor in self._late if self._is_cheap(tensor)]
        while ahead:
            tensor = ahead.pop()
            if tensor not in wanted:
                wanted[tensor] = [t for t in step.nodes[tensor[0]].inputs if self._joins(t, tensor)]
                ahead += wanted[tensor]
        groups = _connected(wanted)
        return sorted(groups, key=lambda group: (-step.stages[group[0][0]], group))

    def _joins(self, tensor: Tensor, other: Tensor) -> bool:
        return self._is_cheap(tensor) and self._step.stages[tensor[0]] == self._step.stages[other[0]]

    def _region(self, group: list[Tensor]) -> Region | None:
        wanted = [t for t in group if self._served(t) and t not in self._forced]
        if not wanted:
            return None
        kept = self._cheapest(group, wanted, group)
        before = self._cheapest(group, wanted, [t for t in group if self._comes_again_by_itself(t)])
        saved = sum(map(self._cost, before)) - sum(map(self._cost, kept))
        again = [t for t in wanted if t not in kept]
        if saved <= 0 or not again:
            return None
        return self._region_of(set(group), kept, again, int(saved))

    def _region_of(self, group: set[Tensor], kept: set[Tensor], again: list[Tensor], saved: int) -> Region | None:
        inputs = lambda tensor: self._step.nodes[tensor[0]].inputs  # noqa: E731
        copied = set(reached(again, lambda tensor: [t for t in inputs(tensor) if t in group and t not in kept]))
        uses = [(reader, t) for t in again for reader in self._served(t)]
        return self._placed(copied, uses, saved)

    def _placed(self, copied: set[Tensor], uses: list[tuple[int, Tensor]], saved: int) -> Region | None:
        """The Region, None if nothing of the backward pass is there to wait for."""
        step = self._step
        trigger = self._latest_trigger([reader for reader, _ in uses])
        if trigger is None:
            return None
        # integers may be shapes and axes, which XLA must know when it compiles: no barrier stands before them
        inputs = {t for place, _ in copied for t in step.nodes[place].inputs if t not in copied}
        if any(step.op(place) == table.LATE_READ for place, _ in inputs):
            return None
        kept = tuple(sorted(t for t in inputs if step.op(t[0]) != "Const" and self._is_float(t)))
        if not kept:
            return None
        return Region(
            copied=tuple(sorted(place for place, _ in copied)),
            kept=kept,
            uses=tuple(sorted(uses)),
            trigger=trigger,
            saved=saved,
            moved=sum(map(self._moved, copied)),
            flops=sum(step.nodes[place].flops for place, _ in copied),
        )

    def _variables(self) -> list[Region]:
        """Casts of variables for products of the backward pass: the variable itself is there anyway."""
        step, regions = self._step, []
        for tensor, readers in sorted(self._late.items()):
            node = step.nodes[tensor[0]]
            served = self._served(tensor)
            if node.op == "Cast" and step.op(node.inputs[0][0]) == table.READ and len(served) == len(readers):
                region = self._placed({tensor}, [(reader, tensor) for reader in served], step.bytes(tensor))
                regions += [region] if region else []
        return regions

    def _comes_again_by_itself(self, tensor: Tensor) -> bool:
        """Whether XLA computes a value again for each reader: what is light and no kernel reads from memory."""
        op, readers = self._step.op, self._step.readers[tensor]
        return op(tensor[0]) in table.LIGHT and all(op(reader) in table.FUSED for reader in readers)

    def _cheapest(self, group: list[Tensor], wanted: list[Tensor], again: list[Tensor]) -> set[Tensor]:
        """What is kept if of the group only the tensors `again` can be computed again."""
        step = self._step
        keeping: dict[Tensor, float] = {}
        computing: dict[Tensor, float] = {}
        edges: list[tuple[Tensor, Tensor]] = []
        for tensor in group:
            keeping[tensor] = self._cost(tensor)
            computing[tensor] = self._moved(tensor) * PRICE if tensor in again else cut.INFINITE
            for source in step.nodes[tensor[0]].inputs:
                edges.append((source, tensor))
                if source not in keeping and source not in group:
                    stays = source in self._late  # it is kept for its own late readers
                    keeping[source], computing[source] = 0 if stays else self._cost(source), cut.INFINITE
        small = max(keeping.values()) * SMALL
        outside = [t for t in keeping if t not in group and keeping[t] < small]
        keeping.update(dict.fromkeys(outside, 0))
        return cut.cheapest(keeping, computing, edges, wanted)

    def _cost(self, tensor: Tensor) -> int:
        """Bytes of keeping a tensor; 0 if it stays anyway."""
        if self._step.op(tensor[0]) in table.GIVEN or tensor in self._forced:
            return 0
        readers = self._late.get(tensor, ())
        stays = bool(readers) if not self._is_cheap(tensor) else len(self._served(tensor)) < len(readers)
        return 0 if stays else self._step.bytes(tensor)

    def _moved(self, tensor: Tensor) -> int:
        """Bytes that computing a tensor again moves beside those of its readers."""
        step, place = self._step, tensor[0]
        stands = any(step.op(reader) not in table.FUSED for reader in self._served(tensor))
        moved = stands * 2 * step.bytes(tensor)
        if step.op(place) in table.REDUCTIONS:
            return moved + max(map(step.bytes, step.nodes[place].inputs))
        return moved + (step.traffic(place) if step.op(place) in table.PRODUCTS else 0)

    def _dtype(self, tensor: Tensor) -> str:
        place, port = tensor
        return self._step.results(place)[port].dtype

    def _is_float(self, tensor: Tensor) -> bool:
        return self._dtype(tensor) in table.FLOATS

    def _latest_trigger(self, readers: list[int]) -> Tensor | None:
        """What readers wait for in the backward pass: the latest product that cannot depend on one of them."""
        step = self._step
        first = min(step.times[reader] for reader in readers)
        triggers = [trigger for trigger in map(self._trigger, sorted(set(readers))) if trigger is not None]
        before = {trigger for trigger in triggers if step.stages[trigger[0]] <= first}
        latest = sorted(before, key=lambda t: (-step.stages[t[0]], t))
        return next((trigger for trigger in latest if not step.depends(trigger[0], readers)), None)

    def _trigger(self, place: int) -> Tensor | None:
        """The product of the backward pass that a node depends on most directly: None if there is none."""
        step = self._step
        while step.nodes[place].inputs:
            source, port = max(step.nodes[place].inputs, key=lambda t: (step.stages[t[0]], t[0]))
            if step.stages[source] <= step.middle:
                return None
            if step.begins_stage(source):
                return (source, port) if self._is_float((source, port)) else None
            place = source
        return None


def _connected(edges: Mapping[Tensor, list[Tensor]]) -> list[list[Tensor]]:
    """Groups of connected vertices, each sorted; `edges` is vertex -> its neighbours, all of them vertices."""
    parent = {vertex: vertex for vertex in edges}

    def root(vertex: Tensor) -> Tensor:
        while parent[vertex] != vertex:
            parent[vertex] = vertex = parent[parent[vertex]]
        return vertex

    for vertex, others in edges.items():
        for other in others:
            parent[root(vertex)] = root(other)
    groups: dict[Tensor, list[Tensor]] = collections.defaultdict(list)
    for vertex in sorted(edges):
        groups[root(vertex)].append(vertex)
    return list(groups.values())
