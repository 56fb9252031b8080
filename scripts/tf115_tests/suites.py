"""The suites of tests that this folder runs: TensorFlow 1.15's own, and those of libraries on it."""

from typing import NamedTuple, Tuple

import tree


class Suite(NamedTuple):
    """A suite of tests.

    Attributes:
        at: revision of the git directory that holds it.
        root: what its files call their tree.
        files: list of its files, beside this module.
        data: what the files read, and helpers beside them; none of these is a test.
        imports: what nearly every file imports, and what an import by npu-shim's face of TensorFlow leaves as it is.
        results: folder of its results in that of all: suites may have files of one path.
        by_pytest: whether pytest runs the files, or unittest, each as a program.
    """

    at: str
    root: str
    files: str
    data: Tuple[str, ...]
    imports: Tuple[str, ...]
    results: str
    by_pytest: bool


SUITES = {
    "tensorflow": Suite("HEAD", "org_tensorflow", "files.txt", (*tree.DATA, *tree.HELPERS), (
        "tensorflow.python.framework.test_util", "tensorflow.python.platform.test", "tensorflow.keras.layers",
        "tensorflow.contrib.slim", "tensorflow.contrib.rnn",
    ), "", by_pytest=False),
    "keras": Suite("2.3.1", "keras_2_3_1", "keras_files.txt", (
        "tests/conftest.py", "tests/keras/legacy/conftest.py",
    ), ("pytest", "scipy.sparse"), "", by_pytest=True),
    "keras-2.2.4": Suite("2.2.4", "keras_2_2_4", "keras_2_2_4_files.txt", (
        "tests/conftest.py", "tests/keras/backend/reference_operations.py",
    ), ("pytest", "scipy.sparse"), "keras-2.2.4", by_pytest=True),
}  # fmt: skip
