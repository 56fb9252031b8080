"""TensorFlow 1.x training scripts written for Ascend NPUs, unmodified on GPUs and CPUs.

Importing this package imports neither TensorFlow nor numpy; every public name is loaded at first use.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

__version__ = "0.1.0"

_HERE = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_HERE, "rewriter")):  # a checkout: rewriter/ and configs/ lie beside this folder
    __path__.append(os.path.dirname(_HERE))

if "tensorflow" not in sys.modules:
    # TensorFlow decides when it is imported whether oneDNN's kernels run: by itself, by the kind of processor
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# public name -> module that defines it
PUBLIC = {
    "ConfigError": "npu_shim.rewriter.errors",
    "PlanError": "npu_shim.rewriter.errors",
    "VerifyError": "npu_shim.rewriter.errors",
    "rewrite": "npu_shim.options.rewriting",
    "compile_step": "npu_shim.xla.compiled_step",
    "check_config": "npu_shim.options.checking",
    "amp_level": "npu_shim.options.amp_config",
    "custom_mixed_precision": "npu_shim.options.amp_config",
    "get_white_list": "npu_shim.options.amp_config",
    "get_black_list": "npu_shim.options.amp_config",
    "enable": "npu_shim.session.enabling",
    "disable": "npu_shim.session.enabling",
    "patch": "npu_shim.session.patch",
    "unpatch": "npu_shim.session.patch",
    "to_float": "npu_shim.options.scopes",
    "Calibration": "npu_shim.session.calibration",
    "calibrate": "npu_shim.session.calibration",
    "float32_variable_storage_getter": "npu_shim.checkpoint.master_weights",
    "get_custom_getter": "npu_shim.checkpoint.master_weights",
    "master_weights": "npu_shim.checkpoint.master_weights",
    "master_of": "npu_shim.checkpoint.master_weights",
    "master_weights_report": "npu_shim.checkpoint.master_weights",
    "embedding_lookup": "npu_shim.checkpoint.master_weights",
    "CastFromFloat32SaverBuilder": "npu_shim.checkpoint.saver",
    "CastingSaverBuilder": "npu_shim.checkpoint.saver",
    "casting_initializers": "npu_shim.checkpoint.saver",
    "init_from_checkpoint": "npu_shim.checkpoint.saver",
    "warm_start": "npu_shim.checkpoint.saver",
    "migrate_checkpoint": "npu_shim.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError("module 'npu_shim' has no attribute '%s'" % name)
    try:
        return getattr(importlib.import_module(PUBLIC[name]), name)
    except ModuleNotFoundError as reason:
        if reason.name != "tensorflow":
            raise
        from npu_shim.compat.tensorflow_v1 import without_tensorflow

        raise without_tensorflow(reason) from reason


def __dir__() -> list[str]:
    return sorted(list(globals()) + list(PUBLIC))
