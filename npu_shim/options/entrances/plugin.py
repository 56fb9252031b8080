"""npu_plugin's functions: the options a program gives before its first session, and the device's overflow mode.

Off the NPU there is nothing to set up. Options are checked as the vendor's are. On the NPU the precision options given
here hold for the process; here they are the defaults of sessions that give none of their own. Source: Ascend adapter of
2023-12 (r1.15), npu_plugin.
"""

from __future__ import annotations

import logging
from typing import Any, Mapping

from npu_shim.options.entrances.argument_checks import check_bool_type, check_nonnegative_integer
from npu_shim.options.table import PRECISION_MODES
from npu_shim.rewriter.errors import ConfigError

LOG = logging.getLogger("npu_shim")
AOE_MODES = ("1", "2", "4")
_given: dict[str, Any] = {}  # precision options of npu_resource_init, the process's as on the NPU


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a session's option values with npu_resource_init's as defaults; a mode of the session's own wins."""
    own_mode = any(name in values for name in PRECISION_MODES)
    defaults = {name: value for name, value in _given.items() if not (own_mode and name in PRECISION_MODES)}
    return {**defaults, **values}


def npu_resource_init(
    graph_run_mode: int = 1,
    op_debug_level: int = 0,
    enable_profiling: bool = False,
    profiling_options: str | None = None,
    precision_mode: str | None = None,
    enable_scope_fusion_passes: str | None = None,
    enable_exception_dump: int = 2,
    aoe_mode: str | None = None,
    work_path: str | None = None,
    op_compiler_cache_mode: str | None = None,
    op_compiler_cache_dir: str | None = None,
    debug_dir: str | None = None,
    hcom_multi_mode: bool = False,
    distribute_config: str | None = None,
    aoe_config_file: str | None = None,
    precision_mode_v2: str | None = None,
    **others: Any
) -> None:
    """Checks the options of the NPU's resources and keeps the precision options; nothing is allocated.

    Args:
        graph_run_mode: 1 training, 0 inference.
        op_debug_level: int >= 0.
        enable_profiling: bool; True needs profiling_options.
        profiling_options: str.
        precision_mode: str, for sessions that give none; checked at their first run, as there.
        enable_scope_fusion_passes: str.
        enable_exception_dump: int >= 0.
        aoe_mode: "1", "2", "4" or None.
        work_path: str.
        op_compiler_cache_mode: str.
        op_compiler_cache_dir: str.
        debug_dir: str.
        hcom_multi_mode: bool.
        distribute_config: str.
        aoe_config_file: str.
        precision_mode_v2: str, as precision_mode.
        others: options of other releases, accepted and ignored.

    Raises:
        TypeError: an option of another type.
        ValueError: an option out of range.
    """
    numbers = {
        "graph_run_mode": graph_run_mode,
        "op_debug_level": op_debug_level,
        "enable_exception_dump": enable_exception_dump,
    }
    for name, value in numbers.items():
        check_nonnegative_integer(value, "npu_resource_init: " + name)
    if graph_run_mode > 1:
        raise ConfigError("npu_resource_init: graph_run_mode must be 0 or 1, got %d" % graph_run_mode)
    for name, value in {"enable_profiling": enable_profiling, "hcom_multi_mode": hcom_multi_mode}.items():
        check_bool_type(value, "npu_resource_init: " + name)
    if enable_profiling and profiling_options is None:
        raise ConfigError("npu_resource_init: enable_profiling=True needs profiling_options")
    if aoe_mode is not None and aoe_mode not in AOE_MODES:
        raise ConfigError("npu_resource_init: aoe_mode must be one of %s, got %r" % (", ".join(AOE_MODES), aoe_mode))
    chosen = {"precision_mode": precision_mode, "precision_mode_v2": precision_mode_v2}
    _given.clear()
    _given.update({name: value for name, value in chosen.items() if value is not None}, graph_run_mode=graph_run_mode)


def npu_resource_shutdown() -> None:
    """Forgets the options of npu_resource_init; there are no resources to release."""
    _given.clear()


def npu_close() -> None:
    """Does nothing: there is no device to close."""


def set_device_sat_mode(mode: int) -> None:
    """Sets the device's overflow mode: 1, INF and NAN, is what CPUs and GPUs do; 0, saturation, only warns.

    Raises:
        ConfigError: neither 0 nor 1.
    """
    if mode not in (0, 1):
        raise ConfigError("set_device_sat_mode: mode must be 0 (saturation) or 1 (INF and NAN), got %r" % (mode,))
    if mode == 0:
        LOG.warning("npu_shim: set_device_sat_mode(0): overflow gives INF and NAN on CPUs and GPUs, not saturation")


def is_inf_nan_enabled() -> bool:
    """Returns True: overflow gives INF and NAN on CPUs and GPUs."""
    return True
