"""Who looks on while a step's passes run: what is checked, and where their results are written. No TensorFlow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Mapping

from npu_shim.rewriter.errors import one_of
from npu_shim.rewriter.passes import dump
from npu_shim.rewriter.passes.pipeline import Watch

VERIFY, DUMP = "npu_shim_verify", "npu_shim_dump_graphs"
VARIABLES = {VERIFY: "NPU_SHIM_VERIFY", DUMP: "NPU_SHIM_DUMP_GRAPHS"}
POINTS = ("end", "each")


@dataclass(frozen=True)
class Watching:
    """What options ask of the pipelines of a step.

    Attributes:
        after_each: whether a module's structure is checked after each pass, not only at the end of a pipeline.
        folder: where the module is written after each pass that changed it, "" for nowhere.
    """

    after_each: bool = False
    folder: str = ""

    def of(self, pipeline: str) -> Watch:
        """The Watch of one run of a pipeline."""
        return Watch(self.after_each, dump.to_folder(self.folder, pipeline)) if self.folder else Watch(self.after_each)


NOBODY = Watching()


def wanted(values: Mapping[str, Any]) -> Watching:
    """Returns what is asked for.

    Args:
        values: option values; they win over the environment's NPU_SHIM_VERIFY and NPU_SHIM_DUMP_GRAPHS.

    Raises:
        ConfigError: VERIFY is another word than one of POINTS.
    """
    asked = {key: values.get(key) or os.environ.get(name) or "" for key, name in VARIABLES.items()}
    where = VERIFY if values.get(VERIFY) else VARIABLES[VERIFY]
    return Watching(one_of(asked[VERIFY] or POINTS[0], POINTS, where) == "each", str(asked[DUMP]))
