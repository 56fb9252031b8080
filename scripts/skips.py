"""Which tests may skip where, by what the reason says: any other skip fails `scripts/test --all`, which CI runs.

A test that skips because a package is missing, where the environment should have it, is a test that nobody runs.
"""

import os
import xml.etree.ElementTree as xml
from typing import Dict, Iterator, Tuple

DAY = () if os.environ.get("NPU_SHIM_NIGHTLY") else ("runs with NPU_SHIM_NIGHTLY=1",)
# what a machine may lack, and combinations of parameters that do not exist
ANYWHERE = (
    "NPU_SHIM_REPOSITORIES names no", "NPU_SHIM_ZOO names no", "NPU_SHIM_TF115_TREE names no", "NPU_SHIM_TEST_TF115",
    "NPU_SHIM_KERAS names no", "no checkout of ",
    "TensorFlow sees no GPU", "TensorFlow sees a GPU",
    "has no JAX with its CUDA plugin", "pyright is not on the PATH", "needs chromium",
    "could not import 'librosa", "only root can", "needs root", "mount a tmpfs", "no unshare here",
    "no namespaces here",
    "TensorFlow's own optimizers take no function as loss", "TensorFlow's If takes no reference variables",
    "TensorFlow's own reads of a reference variable come", "this process builds graphs by default",
    "no float32 kernel either",
)  # fmt: skip
NO_PACKAGES = ("could not import ", " is not installed", "is not installed here", "needs plotly", "needs selenium")
NO_JAX = ("JAX is not installed", "no JAX in this process", "JAX is not beside this TensorFlow")
# by the extra that the environment of a tier is installed from: what it has not, and what its TensorFlow is not
BY_EXTRA: Dict[str, Tuple[str, ...]] = {
    "test": (
        *NO_JAX, "2.15.1, comes with Estimator", "needs TensorFlow 1.15's own", "TensorFlow 2 compiles steps",
    ),
    "cpu-test": (*NO_JAX, *NO_PACKAGES, "the name is still there"),
    "test-tf115": (
        *NO_JAX, *NO_PACKAGES, "TensorFlow 1", "1.15", "TensorFlow 2.15", "Python 3.9", "the name is still there",
        "setup.py makes wheels", "no such scale here",
        "this TensorFlow has no", "no Keras 2 here", "kernels differ between versions",
    ),
    "test-tf221": (
        "2.21.0", "TensorFlow 2.15", "needs TensorFlow 1.15's own", "TensorFlow 2.16 and later", "this interpreter has",
        "TensorFlow 2 compiles steps", "TensorFlow 2.2 and later", "kernels differ between versions", "needs plotly",
        "no such scale here",
        "no Estimator in plain", "could not import 'matplotlib", "this TensorFlow has no GPU kernels",
    ),
}  # fmt: skip
# without an interpreter that has JAX, which a row of the table of results says
WITHOUT_JAX = ("no JAX, and NPU_SHIM_JAX names none", "NPU_SHIM_JAX names no", "TensorFlow 2.15 or later, and JAX")


def reasons(extra: str, has_jax: bool) -> Tuple[str, ...]:
    """Returns what the reason of a skip has to contain, one of these, to be expected."""
    return (*DAY, *ANYWHERE, *BY_EXTRA[extra], *(() if has_jax else WITHOUT_JAX))


def unexpected(report: xml.Element, extra: str, has_jax: bool) -> Iterator[Tuple[str, str]]:
    """Yields (test, reason) of the skips in a report of pytest, as JUnit's XML, that nothing expects.

    Args:
        report: the root of the report.
        extra: the extra that the environment was installed from.
        has_jax: whether NPU_SHIM_JAX named an interpreter.
    """
    expected = reasons(extra, has_jax)
    for case in report.iter("testcase"):
        for skip in case.iter("skipped"):
            reason = skip.get("message", "")
            if skip.get("type") == "pytest.skip" and not any(part in reason for part in expected):
                yield "%s::%s" % (case.get("classname"), case.get("name")), reason
