"""Puts kernels in the place of the functions that a program calls for attention. Needs JAX.

    func @npu_shim_attention_forward_0123456789abcdef.7(q, k, v, ..) { the composite }   ->   { the kernel }

What calls the function stays as it is. A function that no kernel computes keeps its composite, with a reason.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from npu_shim.pjrt import artifacts
from npu_shim.pjrt.attention import division, lowering
from npu_shim.pjrt.attention.blocks import refused
from npu_shim.pjrt.attention.spec import KERNEL, Spec
from npu_shim.pjrt.placement import Placement

OLDEST = (8, 0)  # compute capability: Triton compiles for Ampere and later


def for_devices(
    artifact: bytes, table: Mapping[str, str], highest: bool, placement: Placement
) -> tuple[bytes, dict[str, str]]:
    """Substitutes where the program runs on GPUs that run the kernels; see `substituted`."""
    why = unfit(placement.devices[0])
    if placement.divides_hosts:
        why = "with a part of the state on each, kernels are for the cards of one host"
    elif placement.ranks > 1 and len(placement.devices) > 1:
        why = "of ranks, kernels are for those with one card each"
    if why:
        return artifact, dict.fromkeys(table, why)
    return substituted(artifact, table, highest, "cuda", len(placement.devices))


def unfit(device: Any) -> str:
    """Returns why a jax device runs no kernels, "" if it does."""
    if device.platform not in ("gpu", "cuda"):
        return "kernels are for GPUs, this is '%s'" % device.platform
    capability = str(getattr(device, "compute_capability", "") or "")
    if not re.match(r"\d+\.\d+$", capability):
        return "kernels are for NVIDIA GPUs, this is '%s'" % device.device_kind
    if tuple(map(int, capability.split("."))) < OLDEST:
        return "kernels are for compute capability %d.%d and later, '%s' has %s" % (
            *OLDEST, device.device_kind, capability
        )  # fmt: skip
    return ""


def substituted(
    artifact: bytes, table: Mapping[str, str], highest: bool, platform: str, devices: int = 1
) -> tuple[bytes, dict[str, str]]:
    """Substitutes.

    Args:
        artifact: bytes of a StableHLO portable artifact.
        table: name of a function, as TensorFlow has it, to its Spec as JSON.
        highest: whether float32 products are computed in full, not in TF32.
        platform: "cuda", or "cpu" for interpreted kernels.
        devices: how many run the program together.

    Returns:
        (the artifact, for each name of the table `KERNEL` or why the composite stays).
    """
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    specs = {name: _read(text) for name, text in table.items()}
    said: dict[str, set[str]] = {name: {_refused(spec, devices)} - {""} for name, spec in specs.items()}
    with mlir.make_ir_context() as context, context, ir.Location.unknown():
        module = artifacts.parsed(artifact)
        for function in artifacts.functions(module):
            name = _named(function, table)
            spec = specs.get(name)
            if spec is not None and not said[name] - {KERNEL}:
                said[name].add(_replace(ir, module, function, spec, highest, platform, devices))
        if any(KERNEL in text for text in said.values()):
            artifact = artifacts.portable(module, artifacts.newest())
        return artifact, {name: _said(text) for name, text in said.items()}


def _read(text: str) -> Spec | None:
    """The Spec of a text, None for that of a release which had other fields."""
    try:
        return Spec.from_json(text)
    except TypeError:
        return None


def _refused(spec: Spec | None, devices: int) -> str:
    if spec is None:
        return "another release of npu_shim exported it: export it again"
    return refused(spec) or (division.refused(spec, devices) if devices > 1 else "")


def _said(outcomes: set[str]) -> str:
    """What is said of all functions of a name: why one of them has no kernel, if any."""
    return min(outcomes - {KERNEL} or outcomes or {"the program does not call it"})


def _named(function: Any, table: Mapping[str, str]) -> str:
    """The name in the table of a function of the program, whose name XLA has made unique; "" for none."""
    own = artifacts.name(function)
    return next((name for name in table if own == name or own.startswith((name + ".", name + "_"))), "")


def _replace(ir: Any, module: Any, function: Any, spec: Spec, highest: bool, platform: str, devices: int) -> str:
    """Puts the kernel in the place of a function; returns `KERNEL`, or why not."""
    try:
        replacement = ir.Module.parse(lowering.module(spec, highest, platform, devices))
    except Exception as reason:  # each release of JAX has its own for what it cannot lower; the composite does
        lines = str(reason).strip().splitlines() or [""]
        return "this JAX cannot lower the kernel: %s: %s" % (type(reason).__name__, lines[0])
    functions = {artifacts.name(operation): operation for operation in artifacts.functions(replacement)}
    kernel, wanted = functions["main"], function.attributes["function_type"]
    if kernel.attributes["function_type"] != wanted:
        return "the kernel is %s, expected %s" % (kernel.attributes["function_type"], wanted)
    artifacts.place_mesh(ir, module, replacement)
    own = artifacts.name(function)
    names = {name: own if name == "main" else "%s.%s" % (own, name) for name in functions}
    for name, function_op in functions.items():
        copy = function_op.operation.clone(ir.InsertionPoint(function.operation))
        copy.attributes["sym_name"] = ir.StringAttr.get(names[name])
        copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
        _rename_calls(ir, copy, names)
    function.operation.erase()
    return KERNEL


def _rename_calls(ir: Any, function: Any, names: Mapping[str, str]) -> None:
    def visit(op: Any) -> Any:
        if op.name == "func.call":
            op.attributes["callee"] = ir.FlatSymbolRefAttr.get(names[str(op.attributes["callee"]).lstrip("@")])
        return ir.WalkResult.ADVANCE

    function.walk(visit)
