"""The face of the vendor's package `hccl`: ranks, groups and gradient splits; see npu_shim.distributed.job.ranks.

Its import brings NpuOptimizer to life as that of npu_bridge does: a script may take its rank from here and nothing
from there, and name NpuOptimizer in a session's config.
"""

from npu_shim.compat.tensorflow_v1 import import_tensorflow

import_tensorflow()  # as npu_bridge: one clear error where there is none

from npu_shim.session.interception import patch as _session

_session.activate()
