"""What tests run in: a home and caches of their own, and none of the user's settings of TensorFlow and npu_shim."""

import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
from typing import Dict, Iterator, List

# switches of the tests themselves, and of programs that tests call
KEPT = ("NPU_SHIM_JAX", "NPU_SHIM_KERAS", "NPU_SHIM_NIGHTLY", "NPU_SHIM_GOLDEN", "NPU_SHIM_FUZZ", "NPU_SHIM_ZOO",
        "NPU_SHIM_REPOSITORIES", "NPU_SHIM_TF115_TREE", "NPU_SHIM_X")  # fmt: skip
SET_ASIDE = ("NPU_SHIM_", "TF_", "XDG_", "XLA_FLAGS", "RANK_", "ASCEND_", "JOB_ID", "DEVICE_ID")
# a processor without AVX-512, as far as TensorFlow 2.15 can be told to run as on one: XLA cannot
AVX2 = (("TF_ENABLE_ONEDNN_OPTS", "0"), ("ONEDNN_MAX_CPU_ISA", "AVX2"))


@contextlib.contextmanager
def own_home() -> Iterator[Dict[str, str]]:
    """Gives an environment with an empty home, which is removed at the end; the hook is compiled there once.

    Temporary files lie in it too: what tests and the TensorFlow under them leave behind has filled a disk.
    """
    kept = {key: value for key, value in os.environ.items() if key in KEPT or not key.startswith(SET_ASIDE)}
    home = pathlib.Path.home()
    configured = home / ".config" / "pip" / "pip.conf"
    if configured.exists():  # tests that install packages do so from where the user does
        kept.setdefault("PIP_CONFIG_FILE", str(configured))
    if (home / ".pyenv").exists():
        kept.setdefault("PYENV_ROOT", str(home / ".pyenv"))
    folder = tempfile.mkdtemp(prefix="npu_shim_home_")
    try:
        temporary = pathlib.Path(folder) / "tmp"
        temporary.mkdir()
        yield {**kept, "HOME": folder, "TMPDIR": str(temporary)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a process that a test has killed late may still write there


def pytest_arguments(arguments: List[str]) -> List[str]:
    """Returns what pytest is told in front of `arguments`: a process a core, whole files, in a new order."""
    processes = [] if "-n" in arguments else ["-n", str(os.cpu_count() or 1), "--dist", "loadfile"]
    seed = [] if "--seed" in arguments else ["--seed", str(_seed())]
    return [*processes, *seed]


def _seed() -> int:
    """Returns a new number; in CI the commit's own, so that what has failed there fails there again."""
    if os.environ.get("CI"):
        tree = subprocess.run(["git", "rev-parse", "HEAD^{tree}"], stdout=subprocess.PIPE, check=False).stdout
        if tree:
            return int(tree[:5], 16)
    return random.SystemRandom().randrange(10**6)
