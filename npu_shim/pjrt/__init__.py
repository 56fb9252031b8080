"""Exported training steps on JAX's PJRT client, on CPU or CUDA, without TensorFlow.

    program = npu_shim.pjrt.load("exported")
    loss = program.run({"x:0": images, "y:0": labels})["loss:0"]
    program.save("trained.npz")

Needs the extra `[pjrt]` (CPU) or `[pjrt-cuda]`; `npu-shim export` writes the folder.
"""

from npu_shim.pjrt.program import Program, load

__all__ = ["Program", "load"]
