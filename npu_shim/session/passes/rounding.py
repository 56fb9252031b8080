"""Fuses the two Casts that round a float32 tensor: in a session's graph NpuShimRound replaces them.

    x -> Cast (float16) -> Cast (float32) -> MatMul        what the rewriter writes, what `rewrite` and plans show
    x -> NpuShimRound (float16) -> MatMul                  what a session on a CPU runs, with the same values

The op is defined in native/kernels.cc, so only sessions of processes that have loaded the hook get it: `rewrite()` and
`npu-shim plan --write` return graphs that any TensorFlow runs. Function bodies keep their Casts.
"""

from __future__ import annotations

from typing import Any, Iterable

from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.graph.emulation import ROUNDED
from npu_shim.rewriter.graph.kernel_table import device_type
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables.dtypes import FLOAT32, LOW

OP = "NpuShimRound"


def fuse_casts(module: Module, keep: Iterable[str] = (), accelerator: str = "CPU") -> None:
    """Replaces each pair of Casts that rounds on a CPU by one op.

    A Cast down with further readers stays beside the op.

    Args:
        module: with the rewriter's marks.
        keep: names of nodes or tensors that are fed, fetched or run.
        accelerator: device type of the nodes without a device.
    """
    kept = set(map(source_of, keep))
    # a kept node may be fed: then its value is not what it computes
    pairs = [
        (node.inputs[0].node, node)
        for node in module.graph
        if _is_rounding_cast(node, "DstT", "SrcT", accelerator)
        and _is_rounding_cast(node.inputs[0].node, "SrcT", "DstT", accelerator)
        and node.inputs[0].node.name not in kept
    ]
    for down, up in pairs:
        _fuse_pair(down, up)
    if pairs:
        lowered = dict.fromkeys(down for down, _ in pairs)
        named = _locations(module)
        module.graph.remove([down for down in lowered if down.name not in named and not any(down.users())])


def _is_rounding_cast(node: Node, wide: str, low: str, accelerator: str) -> bool:
    """Whether a node is a Cast that the rewriter marked, on a CPU of this process; `wide`, `low`: its attributes."""
    if node.op != "Cast" or ROUNDED not in node.attrs or node.attrs.get("Truncate"):
        return False
    return runs_here(node, accelerator) and node.attrs[wide] == FLOAT32 and node.attrs[low] in LOW


def runs_here(node: Any, accelerator: str) -> bool:
    """Whether a Node or NodeDef runs on a CPU of this process; `accelerator` as of `fuse_casts`."""
    here = "/job:" not in node.device or "/job:localhost/" in node.device
    return here and (device_type(node.device) or accelerator) == "CPU"


def _locations(module: Module) -> set[str]:
    """Names of the nodes that others say they stand beside."""
    locations = (node.attrs["_class"] for node in module.graph if "_class" in node.attrs)
    return {text.decode().partition("@")[2] for texts in locations for text in texts}


def _fuse_pair(down: Node, up: Node) -> None:
    """Makes a Cast up the op that stands for it and the Cast down that it reads."""
    low = up.attrs["SrcT"]
    up.set_controls([*down.controls, *up.controls])
    up.set_inputs(down.inputs)
    up.set_op(OP)
    for name in up.attrs:
        if name[0] != "_":
            del up.attrs[name]
    up.attrs["to"] = low
