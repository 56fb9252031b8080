"""What a process must know of the hosts that run its script as one: `npu-shim launch` tells it by the environment.

It is no job of ranks: RANK_SIZE is not set, and the script sees one process. Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Mapping, Sequence

from npu_shim.rewriter.errors import ConfigError

VARIABLE = "NPU_SHIM_ONE_JOB"  # environment variable, set by `npu-shim launch`


@dataclass(frozen=True)
class Hosts:
    """The hosts of a job.

    Attributes:
        names: of each, as they reach each other.
        index: this one's number.
        port: on which the first host listens.
        files: path of a folder for what this host writes in the place of checkpoints and summaries; "" on the first.
        own_input: whether each has an input of its own, so that a batch is all of theirs together.
    """

    names: Sequence[str]
    index: int
    port: int
    files: str = ""
    own_input: bool = False

    @property
    def name(self) -> str:
        """This host's."""
        return self.names[self.index]

    def text(self) -> str:
        """The value of VARIABLE."""
        return json.dumps(asdict(self))


def of(environment: Mapping[str, str]) -> Hosts | None:
    """Returns the hosts that an environment names, None where it names none; ConfigError for what cannot be read."""
    text = environment.get(VARIABLE)
    if not text:
        return None
    try:
        return Hosts(**json.loads(text))
    except (TypeError, ValueError):
        raise ConfigError("%s=%r in the environment is not what npu-shim launch sets" % (VARIABLE, text)) from None
