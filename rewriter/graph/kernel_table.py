"""Which op runs on which device in which dtypes: TensorFlow's kernel registrations as plain values."""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..tables.dtypes import FLOAT32
from ..tables.dtypes import name as dtype_name
from ..tables.dtypes import number as dtype_number
from .graph_view import Layout

ANY_DEVICE = "DEFAULT"  # TensorFlow's device type for kernels that serve every device which has none of its own
Constraints = Tuple[Tuple[str, FrozenSet[int]], ...]


@dataclass(frozen=True)
class Kernel:
    """One registration: a device type ("CPU", "GPU", ...) and the dtypes that each constrained attribute may have."""

    device: str
    constraints: Constraints = ()

    def runs(self, layout: Layout, dtypes: Sequence[int]) -> bool:
        """Whether it runs an op whose slots have these dtypes."""
        allowed = dict(self.constraints)
        return all(
            slot.attr not in allowed or dtype in allowed[slot.attr] for slot, dtype in zip(layout.slots, dtypes)
        )


@dataclass(frozen=True)
class KernelTable:
    """Kernels by op type. `default_device` is assumed for nodes that no device has been chosen for.

    `slow` are op types, each with the low dtypes in which a CPU has no kernel for it that is fast enough to use: there
    float32's computes on rounded values.
    """

    by_op: Mapping[str, Tuple[Kernel, ...]]
    default_device: str = "CPU"
    slow: Mapping[str, FrozenSet[int]] = field(default_factory=dict)
    _answers: Dict[Tuple[str, str, Tuple[int, ...], int], bool] = field(default_factory=dict, init=False, compare=False)

    def runs(self, layout: Layout, device: str, dtypes: Tuple[int, ...]) -> bool:
        """Whether some kernel runs the op of `layout` on `device` (a device name) with these dtypes of its slots."""
        key = (layout.op, device, dtypes, len(layout.slots))
        answer = self._answers.get(key)
        if answer is None:
            kinds = (device_type(device) or self.default_device, ANY_DEVICE)
            kernels = self.by_op.get(layout.op, ())
            actual = self.runs_in(layout, device, dtypes)
            answer = self._answers[key] = any(k.device in kinds and k.runs(layout, actual) for k in kernels)
        return answer

    def runs_in(self, layout: Layout, device: str, dtypes: Tuple[int, ...]) -> Tuple[int, ...]:
        """The dtypes in which the op computes: these, or float32 for the low ones where it is `slow`."""
        slow = self.slow.get(layout.op)
        if slow is None or slow.isdisjoint(dtypes) or not self.on_cpu(device):
            return dtypes
        return tuple([FLOAT32 if dtype in slow else dtype for dtype in dtypes])

    def on_cpu(self, device: str) -> bool:
        """Whether a device name, or "" for the default device, means a CPU."""
        return (device_type(device) or self.default_device) == "CPU"


def device_type(device: str) -> str:
    """Device type of a device name: "GPU" of "/job:a/device:GPU:0" and of "/gpu:0"; "" where it names none."""
    last = device.rpartition("/")[2]
    if not last or last.startswith(("job:", "task:", "replica:")):
        return ""
    parts = last.split(":")
    return (parts[1] if parts[0].lower() == "device" and len(parts) > 1 else parts[0]).upper()


def to_rows(kernels: Iterable[Kernel]) -> List[str]:
    """The constraints of one op's kernels as text, kernels that differ in one attribute as one row.

    e.g.  {T: float16}, {T: float32}  ->  ["T:float16,float32"]
    """
    patterns = sorted({tuple(sorted(kernel.constraints)) for kernel in kernels}, key=_as_row)
    while True:
        pair = next((pair for pair in combinations(patterns, 2) if _joined(*pair) is not None), None)
        if pair is None:
            return list(map(_as_row, patterns))
        joined = _joined(*pair)
        assert joined is not None
        patterns = sorted([*(pattern for pattern in patterns if pattern not in pair), joined], key=_as_row)


def of_rows(rows: Iterable[str], device: str) -> Tuple[Kernel, ...]:
    """The kernels of `to_rows` on a device type."""
    return tuple(Kernel(device, tuple(map(_constraint, row.split()))) for row in rows)


def _joined(first: Constraints, second: Constraints) -> Optional[Constraints]:
    """One set of constraints for two that differ in one attribute at most, or None."""
    differing = [number for number, pair in enumerate(zip(first, second)) if pair[0] != pair[1]]
    if len(first) != len(second) or len(differing) > 1:
        return None
    if not differing:
        return first
    (attr, dtypes), (other, more) = first[differing[0]], second[differing[0]]
    if attr != other:
        return None
    return (*first[: differing[0]], (attr, dtypes | more), *first[differing[0] + 1 :])


def _as_row(constraints: Constraints) -> str:
    return " ".join("%s:%s" % (attr, ",".join(sorted(map(dtype_name, dtypes)))) for attr, dtypes in constraints)


def _constraint(text: str) -> Tuple[str, FrozenSet[int]]:
    attr, _, dtypes = text.partition(":")
    return attr, frozenset(map(dtype_number, dtypes.split(",")))
