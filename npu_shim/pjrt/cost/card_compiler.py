"""Compiles an exported step for a GPU that is not there.

`main` is for a process of its own, of any interpreter with JAX and its CUDA plugin: its settings hold for a whole
process, and XLA ends it where it meets what it cannot do.
"""

from __future__ import annotations

import json
import os
from typing import Any

SETTINGS = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
NO_AUTOTUNING = "--xla_gpu_autotune_level=0"  # it would run kernels on the card


class Failed(Exception):
    """What failed, a key of `compiling.FAILURES`, and why."""


def main(step: str, target: str, out: str, shape: str, shard_state: str) -> None:
    """Compiles; all that can be told goes to files of a folder.

    These are before.hlo and after.hlo, the program before optimization and as it is scheduled on the card, and
    result.json: XLA's own memory figures and what computes attention, or what failed and why.

    Args:
        step: path of an exported step.
        target: path of a GpuTargetConfigProto as text.
        out: path of the folder.
        shape: of the cards that run it together, as of `links.topology`.
        shard_state: as in `placement.Placement`.
    """
    os.environ.update(SETTINGS)
    os.environ["XLA_FLAGS"] = "%s %s" % (os.environ.get("XLA_FLAGS", ""), NO_AUTOTUNING)
    try:
        result = _compiled(step, target, out, shape, shard_state)
    except Failed as reason:
        result = {"failed": reason.args[0], "reason": str(reason.args[1])}
    with open(os.path.join(out, "result.json"), "w", encoding="utf-8") as f:
        json.dump(result, f)


def _compiled(step: str, target: str, out: str, shape: str, shard_state: str) -> dict[str, Any]:
    try:
        import jax
        from jax.experimental import topologies
    except ImportError as reason:
        raise Failed("jax", reason) from reason
    devices = _devices(topologies, target, shape)
    from npu_shim.pjrt import jax_compat, manifest
    from npu_shim.pjrt.placement import Placement
    from npu_shim.pjrt.program import Program

    described = manifest.read(step)
    code = manifest.program(step, described, "cuda")
    try:
        program = Program(jax, described, code, Placement(devices, shard_state))
        compiled = program.compile()
    except RuntimeError as reason:
        raise Failed("compile", reason) from reason
    for name, text in (("before.hlo", jax_compat.hlo_text(code)), ("after.hlo", compiled.as_text())):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(text)
    memory = compiled.memory_analysis()
    sizes = {name: int(getattr(memory, name + "_size_in_bytes")) for name in ("argument", "output", "alias", "temp")}
    return {"jax": jax.__version__, "memory": sizes, "attention": program.attention}


def _devices(topologies: Any, target: str, shape: str) -> tuple[Any, ...]:
    with open(target, encoding="utf-8") as f:
        text = f.read()
    try:
        topology = topologies.get_topology_desc(platform="cuda", target_config=text, topology=shape)
    except NotImplementedError as reason:  # "topology not implemented for cuda": no plugin that knows better
        raise Failed("plugin", reason) from reason
    except RuntimeError as reason:
        raise Failed("target", reason) from reason
    return tuple(topology.devices)
