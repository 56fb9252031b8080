"""One log line for skipped steps in a row, in place of TensorFlow's advice on the global step at each of them."""

from __future__ import annotations

import logging
import re

# tf.train.StepCounterHook of TensorFlow 1.15.5 and 2.15.1
STALLED = re.compile(r"global step .*has not been increased.*Current value \(could be stable\): (\S+)", re.DOTALL)


def one_line_a_run() -> None:
    """Makes TensorFlow's logger say only once per value of the global step that steps are skipped."""
    logger = logging.getLogger("tensorflow")
    if not any(isinstance(known, OneLineARun) for known in logger.filters):
        logger.addFilter(OneLineARun())


class OneLineARun(logging.Filter):
    """Lets the first message about a value of the global step through, reworded, and suppresses the others."""

    def __init__(self) -> None:
        super().__init__()
        self._value: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record is logged."""
        match = STALLED.search(record.getMessage())
        if match is None:
            return True
        if match.group(1) == self._value:
            return False
        self._value = match.group(1)
        record.msg = "npu_shim: the global step stays at %s while steps whose gradients overflow are skipped"
        record.args = (self._value,)
        return True
