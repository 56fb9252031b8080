"""Programs of steps as HLO, made by TensorFlow or read from the folder for compiled programs.

TensorFlow makes HLO of the same graph in another order in each process, and takes minutes for large graphs. So the HLO
is kept as well, under a hash of the graph; what is compiled of it is found by its own (pjrt.stored).
"""

import hashlib
import json
import os
import struct
from dataclasses import asdict
from typing import Any, Tuple

import tensorflow.compat.v1 as tf

from npu_shim import __version__
from npu_shim.export import step as export
from npu_shim.pjrt import manifest, program_cache
from npu_shim.pjrt.manifest import Manifest
from npu_shim.session import devices, lines

SUFFIX = ".hlo"
LENGTH = struct.Struct("<q")  # of the Manifest, in front of it; the HLO follows


def of(step: Any, cache: str = "", float32_products: str = "") -> Tuple[Manifest, bytes]:
    """Returns a step's Manifest and the bytes of its HloModuleProto.

    Args:
        step: `xla.step_function.StepFunction`.
        cache: path of the folder, "" for none.
        float32_products: as in `export.step.export`, "" for those of the script's sessions.

    Raises:
        PlanError or ConfigError: XLA cannot compile the step, or a result has no fixed size.
    """
    float32_products = float32_products or products_of_sessions()
    if not cache:
        return _lowered(step, float32_products)
    name = _identity(step, float32_products) + SUFFIX
    try:
        return _unpacked(program_cache.read(cache, name))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as reason:  # a file of another release can fail in any way
        lines.once(program_cache.unusable(cache, name, reason))
    described, hlo = _lowered(step, float32_products)
    try:
        program_cache.write(cache, name, _packed(described, hlo))
    except Exception as reason:
        lines.once(program_cache.not_kept(cache, reason))
    return described, hlo


def products_of_sessions() -> str:
    """What `export.step.export` calls float32_products: "highest" where the script or user switches TF32 off."""
    asked = getattr(tf.config.experimental, "tensor_float_32_execution_enabled", bool)  # TensorFlow 1 has no TF32
    enabled = asked()  # for TensorFlow's kernels
    overridden = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"  # for NVIDIA's libraries; XLA's own kernels ignore it
    return "default" if enabled and not overridden else "highest"


def _lowered(step, float32_products):
    module = export.hlo_module(step, float32_products)
    described = export.describe(step, module, kind="hlo", float32_products=float32_products, options={})
    export.require_fixed_sizes(described, module)
    return described, export.without_origins(module)


def _identity(step, float32_products):
    """A hash of all that the HLO depends on."""
    feeds = [(feed.name, feed.dtype.name, feed.shape.as_list()) for feed in step.feeds]
    fetches = [fetch if isinstance(fetch, str) else (fetch.name, fetch.dtype.name) for fetch in step.fetches]
    state = [
        (variable.name, variable.dtype.name, variable.shape, variable.updated)
        for variable in step.state
    ]
    counts = export.plan_counts(step.plan), step.recomputation.counts(), step.attention.counts()
    flags = [os.environ.get(name, "") for name in ("TF_XLA_FLAGS", "XLA_FLAGS")]
    settings = [tf.__version__, __version__, float32_products, devices.accelerator(), *flags]
    told = json.dumps([feeds, fetches, sorted(step.places.items()), state, counts, settings], default=str)
    digest = hashlib.sha256(told.encode("utf-8", "surrogateescape"))
    digest.update(step.graph_def.SerializeToString(deterministic=True))
    return digest.hexdigest()[:40]


def _packed(described, hlo):
    text = json.dumps(asdict(described)).encode()
    return LENGTH.pack(len(text)) + text + hlo


def _unpacked(content):
    (length,), rest = LENGTH.unpack_from(content), content[LENGTH.size :]
    return manifest.decoded(json.loads(rest[:length].decode())), rest[length:]
