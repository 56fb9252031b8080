"""Whether TensorFlow's optimizers run as the config has them: in a session that nothing is lowered in.

They go round twice, unless the config says otherwise; where something is lowered, once is enough. The remapper fuses
products with their bias and activation into ops that no list names, in front of the rewriter. So both are set where
nodes are lowered, shown, measured or compiled. Elsewhere they stay as the script's config has them, and the session
computes bit by bit what plain TensorFlow does.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from npu_shim.options import engine, table
from npu_shim.options.precision import policy_of
from npu_shim.options.reports import kept_pages
from npu_shim.rewriter.errors import ConfigError
from npu_shim.session import clusters
from npu_shim.session.observers import calibration, trace
from npu_shim.session.trial import protocol

HARMLESS = frozenset([*table.PRECISION_MODES, "npu_shim_profile", engine.KEY])  # options that look at no node
SWITCHES = (kept_pages.SWITCH, calibration.SWITCH, trace.SWITCH, protocol.FOLDER)  # of what looks at nodes


def may_stay(values: Mapping[str, Any]) -> bool:
    """Whether the optimizers of a session stay as its config has them; it has these option values and no engine."""
    if any(os.environ.get(name) for name in SWITCHES) or not HARMLESS.issuperset(values):
        return False
    try:
        return not policy_of(table.validate(values)).changes and not clusters.wanted(values)
    except ConfigError:  # the session's first run says so
        return False
