"""Hides what TensorFlow 2 says to every TensorFlow 1 script: that its names are deprecated, and how it starts.

The script's own warnings stay, ours stay, and TensorFlow's errors stay. `npu-shim run --verbose` hides nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import warnings
from typing import Iterator

VARIABLE = "NPU_SHIM_VERBOSE"  # environment variable: 1 hides nothing
LEVEL, ERRORS_ONLY = "TF_CPP_MIN_LOG_LEVEL", "2"  # of TensorFlow's C++ libraries
# what warnings.warn is given for names of TensorFlow and Keras
DEPRECATED = r"\s*`(tf|tf_keras|keras|[Ll]ayer|[Mm]odel)\.[\w.]+` (is deprecated|will be removed in a future version)"
# modules whose functions TensorFlow's decorators call deprecated
THEIRS = re.compile(r"(tensorflow|tensorflow_core|tensorflow_estimator|keras|tf_keras|tf_slim|tf)\b")
# lines of its C++ libraries as they are loaded; `grep -E` reads this
LOADING = (
    "Unable to register cu(DNN|FFT|BLAS) factory|computation placer already registered|TF-TRT Warning"
    "|All log messages before absl::InitializeLog|^I0000 .* (port|cudart_stub|cpu_feature_guard)\\.cc:"
)


def is_on() -> bool:
    """Whether anything is hidden."""
    return os.environ.get(VARIABLE, "0") in ("", "0")


def install() -> None:
    """Hides deprecation warnings of TensorFlow's and Keras's own names from now on; a second call does nothing."""
    warnings.filterwarnings("ignore", DEPRECATED, category=UserWarning)
    logger = logging.getLogger("tensorflow")
    if not any(isinstance(one, _Deprecations) for one in logger.filters):
        logger.addFilter(_Deprecations())


class _Deprecations(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not hides(record)


def hides(record: logging.LogRecord) -> bool:
    """Whether a record is what the decorators of tensorflow.python.util.deprecation log about TensorFlow's own names.

    Their forms are `From PLACE: NAME (from MODULE) is deprecated ...`, `From PLACE: calling NAME (from MODULE) with
    ARGUMENT is deprecated ...` and `From PLACE: The name NAME is deprecated ...`.
    """
    form, words = str(record.msg), record.args
    if not (form.startswith("From %s: ") and " deprecated" in form and isinstance(words, tuple)):
        return False
    owner = words[1] if form.startswith("From %s: The name ") else words[2]
    return THEIRS.match(str(owner)) is not None


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Scope in which TensorFlow is loaded: `LOADING` does not reach standard error, all else does, as it comes.

    The lines pass through another process, so that none is lost where TensorFlow ends this one.
    """
    if not is_on() or "tensorflow" in sys.modules:
        yield
        return
    try:
        words = ["grep", "-a", "--line-buffered", "-vE", LOADING]
        # 1>&2: what is left goes where standard error goes now; a session of its own, so that Ctrl-C leaves it alone
        filtering = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=2, start_new_session=True)
    except OSError:  # no grep, or standard error is closed
        yield
        return
    assert filtering.stdin is not None
    own = os.dup(2)
    try:
        with filtering.stdin as end:
            os.dup2(end.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that TensorFlow started may still hold it
            filtering.wait(5)
