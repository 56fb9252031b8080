"""Which requests of a command line sessions have met: the one place that knows. No TensorFlow.

`npu-shim run` and `npu-shim tune` name a folder in the environment. What takes a request notes it there, in whichever
process of the script it is; at the end the command says of each request that nothing took what it would have taken.
"""

from __future__ import annotations

import contextlib
import os
from typing import Iterable

VARIABLE = "NPU_SHIM_REQUESTS"  # a folder with a file for each request that was met
MODE, SET, ENGINE, REPORT, CALIBRATE = "--precision-mode", "--set", "--engine", "--report", "--calibrate"
# request -> what it does where it is met
TAKES = {
    MODE: "lowers the graphs of sessions",
    SET: "overrides the options of sessions",
    ENGINE: "runs the training steps of sessions that name no engine themselves",
    REPORT: "shows the graphs of sessions",
    CALIBRATE: "measures the training steps of sessions",
}
OF_EVERY_SESSION = (MODE, SET, REPORT, CALIBRATE)


def met(*requests: str) -> None:
    """Notes that a session of this process has taken requests, keys of TAKES."""
    folder = os.environ.get(VARIABLE)
    if folder:
        with contextlib.suppress(OSError):  # the command that asked has ended
            for request in requests:
                with open(os.path.join(folder, request), "ab"):
                    pass


def is_met(folder: str, request: str) -> bool:
    """Whether a process that has the folder in its environment has met a request."""
    return os.path.exists(os.path.join(folder, request))


def unmet(folder: str, asked: Iterable[tuple[str, str]]) -> list[str]:
    """Returns a line for each request that no session has taken.

    Args:
        folder: what VARIABLE named.
        asked: (key of TAKES, the word behind it) of each request.
    """
    text = (
        "npu-shim: %s %s has reached no session: it %s, and the script ran none. Eager execution and tf.function make "
        "none: this is for the graphs and sessions of TensorFlow 1"
    )
    return [text % (name, word, TAKES[name]) for name, word in asked if not is_met(folder, name)]
