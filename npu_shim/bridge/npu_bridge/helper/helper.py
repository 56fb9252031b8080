"""npu_bridge.helper.helper: the handle to the vendor's ops, see npu_shim.bridge.ops.gen_ops."""

from __future__ import annotations

from typing import Any

from npu_shim import __version__ as version
from npu_shim.bridge.ops import gen_ops as npu_bridge_handle


def get_gen_ops() -> Any:
    """Returns the module with the vendor's ops."""
    return npu_bridge_handle
