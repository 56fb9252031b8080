"""One line for a run of skipped steps, in place of TensorFlow's advice on the global step at every one of them."""

import logging
import re

# tf.train.StepCounterHook of TensorFlow 1.15.5 and 2.15.1
STALLED = re.compile(r"global step .*has not been increased.*Current value \(could be stable\): (\S+)", re.DOTALL)


def one_line_a_run():
    """From now on TensorFlow's logger says once a value of the global step that steps are skipped there."""
    logger = logging.getLogger("tensorflow")
    if not any(isinstance(each, OneLineARun) for each in logger.filters):
        logger.addFilter(OneLineARun())


class OneLineARun(logging.Filter):
    """Lets the first message about a value of the global step through, in words that fit, and holds the next back."""

    def __init__(self):
        super().__init__()
        self._value = None

    def filter(self, record):
        """Returns whether the record is logged."""
        found = STALLED.search(record.getMessage())
        if found is None:
            return True
        if found.group(1) == self._value:
            return False
        self._value = found.group(1)
        record.msg = "npu_shim: the global step stays at %s while steps whose gradients overflow are skipped"
        record.args = (self._value,)
        return True
