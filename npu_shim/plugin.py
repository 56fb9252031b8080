"""npu_plugin's functions: the options a program gives before its first session, and the device's overflow mode.

Off the NPU there is nothing to set up. Options are checked as the vendor's are; a precision_mode given here applies to
no session by itself, and the log says so. Source: Ascend adapter of 2023-12 (r1.15), npu_plugin.
"""

import logging

from npu_shim.rewriter.errors import ConfigError

LOG = logging.getLogger("npu_shim")
AOE_MODES = ("1", "2", "4")


def npu_resource_init(
    graph_run_mode=1,
    op_debug_level=0,
    enable_profiling=False,
    profiling_options=None,
    precision_mode=None,
    enable_scope_fusion_passes=None,
    enable_exception_dump=2,
    aoe_mode=None,
    work_path=None,
    op_compiler_cache_mode=None,
    op_compiler_cache_dir=None,
    debug_dir=None,
    hcom_multi_mode=False,
    distribute_config=None,
    aoe_config_file=None,
    precision_mode_v2=None,
    **others,
):
    """Checks the options of the NPU's resources; nothing is allocated.

    Args:
        graph_run_mode: 1 training, 0 inference.
        op_debug_level: int >= 0.
        enable_profiling: bool; True needs profiling_options.
        profiling_options: str.
        precision_mode: str; give it to the session or to NPURunConfig instead, as here it lowers nothing.
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
        others: options of other releases, taken and not used.

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
        _check_number(name, value)
    if graph_run_mode > 1:
        raise ConfigError("npu_resource_init: graph_run_mode must be 0 or 1, got %d" % graph_run_mode)
    for name, value in {"enable_profiling": enable_profiling, "hcom_multi_mode": hcom_multi_mode}.items():
        if not isinstance(value, bool):
            raise TypeError("npu_shim: npu_resource_init: %s must be bool, got %r" % (name, value))
    if enable_profiling and profiling_options is None:
        raise ConfigError("npu_resource_init: enable_profiling=True needs profiling_options")
    if aoe_mode is not None and aoe_mode not in AOE_MODES:
        raise ConfigError("npu_resource_init: aoe_mode must be one of %s, got %r" % (", ".join(AOE_MODES), aoe_mode))
    for name, value in {"precision_mode": precision_mode, "precision_mode_v2": precision_mode_v2}.items():
        if value is not None:
            LOG.warning("npu_shim: npu_resource_init: %s=%r lowers nothing here, give it to the session", name, value)


def _check_number(name, value):
    if not isinstance(value, int):
        raise TypeError("npu_shim: npu_resource_init: %s must be int, got %s" % (name, type(value)))
    if value < 0:
        raise ConfigError("npu_resource_init: %s must not be negative, got %d" % (name, value))


def npu_resource_shutdown():
    """Does nothing: there are no resources to give back."""


def npu_close():
    """Does nothing: there is no device to close."""


def set_device_sat_mode(mode):
    """Takes the device's overflow mode: 1, INF and NAN, is what CPUs and GPUs do; 0, saturation, does not exist here.

    Raises:
        ConfigError: neither 0 nor 1.
    """
    if mode not in (0, 1):
        raise ConfigError("set_device_sat_mode: mode must be 0 (saturation) or 1 (INF and NAN), got %r" % (mode,))
    if mode == 0:
        LOG.warning("npu_shim: set_device_sat_mode(0): overflow gives INF and NAN on CPUs and GPUs, not saturation")


def is_inf_nan_enabled():
    """Returns True: overflow gives INF and NAN on CPUs and GPUs."""
    return True
