"""Which op runs on which device in which dtypes: TensorFlow's kernel registrations as plain values."""

from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Mapping, Sequence, Tuple

from .graph_view import Layout

ANY_DEVICE = "DEFAULT"  # TensorFlow's device type for kernels that serve every device which has none of its own


@dataclass(frozen=True)
class Kernel:
    """One registration: a device type ("CPU", "GPU", ...) and the dtypes that each constrained attribute may have."""

    device: str
    constraints: Tuple[Tuple[str, FrozenSet[int]], ...] = ()

    def runs(self, layout: Layout, dtypes: Sequence[int]) -> bool:
        """Whether it runs an op whose slots have these dtypes."""
        allowed = dict(self.constraints)
        return all(
            slot.attr not in allowed or dtype in allowed[slot.attr] for slot, dtype in zip(layout.slots, dtypes)
        )


@dataclass(frozen=True)
class KernelTable:
    """Kernels by op type. `default_device` is assumed for nodes that no device has been chosen for."""

    by_op: Mapping[str, Tuple[Kernel, ...]]
    default_device: str = "CPU"
    _answers: Dict[Tuple[str, str, Tuple[int, ...], int], bool] = field(default_factory=dict, compare=False)

    def runs(self, layout: Layout, device: str, dtypes: Tuple[int, ...]) -> bool:
        """Whether some kernel runs the op of `layout` on `device` (a device name) with these dtypes of its slots."""
        key = (layout.op, device, dtypes, len(layout.slots))
        answer = self._answers.get(key)
        if answer is None:
            kinds = (device_type(device) or self.default_device, ANY_DEVICE)
            kernels = self.by_op.get(layout.op, ())
            answer = self._answers[key] = any(k.device in kinds and k.runs(layout, dtypes) for k in kernels)
        return answer


def device_type(device: str) -> str:
    """Device type of a device name: "GPU" of "/job:a/device:GPU:0" and of "/gpu:0"; "" where it names none."""
    last = device.rpartition("/")[2]
    if not last or last.startswith(("job:", "task:", "replica:")):
        return ""
    parts = last.split(":")
    return (parts[1] if parts[0].lower() == "device" and len(parts) > 1 else parts[0]).upper()
