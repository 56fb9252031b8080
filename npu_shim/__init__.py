"""TensorFlow 1.x training scripts written for Ascend NPUs, unmodified on GPUs and CPUs.

Importing this package imports neither TensorFlow nor numpy; every public name is loaded at first use.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if "tensorflow" not in sys.modules:
    # TensorFlow decides when it is imported whether oneDNN's kernels run: by itself, by the kind of processor
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    # so it does which Keras it uses
    importlib.import_module("npu_shim.compat.keras.real_keras").choose()

# public name -> module that defines it, for the import at first use; for type checkers the same names stand below
_HOMES = {
    "ConfigError": "npu_shim.rewriter.errors",
    "PlanError": "npu_shim.rewriter.errors",
    "VerifyError": "npu_shim.rewriter.errors",
    "rewrite": "npu_shim.options.rewriting",
    "compile_step": "npu_shim.engine.compiled_step",
    "check_config": "npu_shim.options.checking",
    "amp_level": "npu_shim.options.entrances.amp_config",
    "custom_mixed_precision": "npu_shim.options.entrances.amp_config",
    "get_white_list": "npu_shim.options.entrances.amp_config",
    "get_black_list": "npu_shim.options.entrances.amp_config",
    "enable": "npu_shim.session.interception.enabling",
    "disable": "npu_shim.session.interception.enabling",
    "patch": "npu_shim.session.interception.patch",
    "unpatch": "npu_shim.session.interception.patch",
    "to_float": "npu_shim.options.ops.scopes",
    "Calibration": "npu_shim.session.observers.calibration",
    "calibrate": "npu_shim.session.observers.calibration",
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
# packages that are attributes too
_PACKAGES = ("checkpoint", "export", "loss_scale", "pjrt")
__all__ = sorted([*_HOMES, *_PACKAGES])

if TYPE_CHECKING:
    from npu_shim import checkpoint as checkpoint
    from npu_shim import export as export
    from npu_shim import loss_scale as loss_scale
    from npu_shim import pjrt as pjrt
    from npu_shim.checkpoint import migrate_checkpoint as migrate_checkpoint
    from npu_shim.checkpoint.master_weights import embedding_lookup as embedding_lookup
    from npu_shim.checkpoint.master_weights import float32_variable_storage_getter as float32_variable_storage_getter
    from npu_shim.checkpoint.master_weights import get_custom_getter as get_custom_getter
    from npu_shim.checkpoint.master_weights import master_of as master_of
    from npu_shim.checkpoint.master_weights import master_weights as master_weights
    from npu_shim.checkpoint.master_weights import master_weights_report as master_weights_report
    from npu_shim.checkpoint.saver import CastFromFloat32SaverBuilder as CastFromFloat32SaverBuilder
    from npu_shim.checkpoint.saver import CastingSaverBuilder as CastingSaverBuilder
    from npu_shim.checkpoint.saver import casting_initializers as casting_initializers
    from npu_shim.checkpoint.saver import init_from_checkpoint as init_from_checkpoint
    from npu_shim.checkpoint.saver import warm_start as warm_start
    from npu_shim.engine.compiled_step import compile_step as compile_step
    from npu_shim.options.checking import check_config as check_config
    from npu_shim.options.entrances.amp_config import amp_level as amp_level
    from npu_shim.options.entrances.amp_config import custom_mixed_precision as custom_mixed_precision
    from npu_shim.options.entrances.amp_config import get_black_list as get_black_list
    from npu_shim.options.entrances.amp_config import get_white_list as get_white_list
    from npu_shim.options.ops.scopes import to_float as to_float
    from npu_shim.options.rewriting import rewrite as rewrite
    from npu_shim.rewriter.errors import ConfigError as ConfigError
    from npu_shim.rewriter.errors import PlanError as PlanError
    from npu_shim.rewriter.errors import VerifyError as VerifyError
    from npu_shim.session.interception.enabling import disable as disable
    from npu_shim.session.interception.enabling import enable as enable
    from npu_shim.session.interception.patch import patch as patch
    from npu_shim.session.interception.patch import unpatch as unpatch
    from npu_shim.session.observers.calibration import Calibration as Calibration
    from npu_shim.session.observers.calibration import calibrate as calibrate
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError("module 'npu_shim' has no attribute '%s'" % name)
        try:
            if name in _PACKAGES:
                return importlib.import_module("npu_shim." + name)
            return getattr(importlib.import_module(_HOMES[name]), name)
        except ModuleNotFoundError as reason:
            if reason.name != "tensorflow":
                raise
            from npu_shim.compat.tensorflow_v1 import without_tensorflow

            raise without_tensorflow(reason) from reason


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
