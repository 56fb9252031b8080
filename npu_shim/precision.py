"""From the options of a session to the rewriter's inputs: a policy and an op table."""

import functools
import glob
import os
from dataclasses import dataclass
from typing import Any, Mapping, Tuple

from . import configs, mixlist
from .rewriter import op_table
from .rewriter.errors import ConfigError, nearest
from .rewriter.op_table import OpTable
from .rewriter.policy import DEFAULT_MODE, PRECISION_MODE, PRECISION_MODE_V2, PrecisionPolicy

# profile -> does its hardware run every op in float16 and in float32? The lists are the same
PROFILES = {"ascend910": False, "gpu": True}


@dataclass(frozen=True)
class Precision:
    """What options mean: the policy of the mode, the op table with the user's lists in it, and what there is to say."""

    policy: PrecisionPolicy
    table: OpTable
    warnings: Tuple[str, ...] = ()
    unmatched: Tuple[str, ...] = ()


def resolve(values: Mapping[str, Any]) -> Precision:
    """Reads the precision options.

    Args:
        values: option name -> value, as `options.read_values` gives them; those that matter here are precision_mode,
            precision_mode_v2,
            graph_run_mode, modify_mixlist and npu_shim_profile. Their values have been through `options.validate`.

    Raises:
        ConfigError: a profile that does not exist, or a file that cannot be read.
    """
    table = profile_table(values.get("npu_shim_profile") or "ascend910", os.environ.get("NPU_SHIM_OPS_INFO_DIR"))
    warnings: Tuple[str, ...] = table.warnings
    unmatched: Tuple[str, ...] = ()
    path = values.get("modify_mixlist")
    if path:
        merged = mixlist.merge(mixlist.read(path), table)
        table, unmatched = merged.table, merged.unmatched
        warnings += merged.warnings
    return Precision(policy_of(values), table, warnings, unmatched)


def policy_of(values: Mapping[str, Any]) -> PrecisionPolicy:
    """The policy of precision_mode or precision_mode_v2; with neither, graph_run_mode's (0 inference, 1 training)."""
    if values.get("precision_mode"):
        return PRECISION_MODE[values["precision_mode"]]
    if values.get("precision_mode_v2"):
        return PRECISION_MODE_V2[values["precision_mode_v2"]]
    run_mode = values.get("graph_run_mode")
    return PRECISION_MODE[DEFAULT_MODE[1 if run_mode is None else run_mode]]


@functools.lru_cache(maxsize=8)
def profile_table(profile: str, folder: "str | None" = None) -> OpTable:
    """The op table of a profile.

    Args:
        profile: "ascend910" or "gpu".
        folder: of op information files to read instead of the shipped ones.

    Raises:
        ConfigError: no such profile, or a file of the folder cannot be read.
    """
    if profile not in PROFILES:
        raise ConfigError("profile '%s', expected %s%s" % (profile, " or ".join(PROFILES), nearest(profile, PROFILES)))
    where = folder or configs.folder("ascend910")
    files = sorted(glob.glob(os.path.join(where, "*.json")))
    if not files:
        raise ConfigError("no op information file (*.json) in '%s'" % where)
    return op_table.build(profile, files, configs.load("ascend_names.json")["variants"], all_dtypes=PROFILES[profile])
