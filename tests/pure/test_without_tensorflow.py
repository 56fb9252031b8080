"""Where no TensorFlow is installed: one clear error, whichever way in."""

import subprocess
import sys

import pytest

WAY_OUT = (
    "npu_shim: TensorFlow cannot be imported (No module named 'tensorflow'); "
    "install one with: pip install "
)
# hides TensorFlow as if it were not installed
HIDE = """
import sys
HIDDEN = ["tensorflow"]
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in HIDDEN:
            raise ModuleNotFoundError("No module named '%s'" % name, name=name)
sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize(
    "code",
    [
        "from npu_bridge.npu_init import *",
        "import npu_bridge",
        "from hccl.manage.api import get_rank_id",
        "import npu_shim; npu_shim.rewrite",
        "from npu_shim.cli import main; sys.exit(main(['plan', 'graph.pb', '--fetches', 'a']))",
        "from npu_shim.cli import main; sys.exit(main(['run', 'script.py']))",
        "from npu_shim.cli import main; sys.exit(main(['doctor']))",
        "from npu_shim.cli import main; sys.exit(main(['migrate-checkpoint', 'a', 'b', '--to', 'float16']))",
    ],
)
def test_one_clear_error(code, tmp_path):
    (tmp_path / "script.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", HIDE + code],
        cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    lines = done.stderr.decode().strip().splitlines()
    assert done.returncode in (1, 2)
    assert WAY_OUT in lines[-1]
    assert "[gpu]' (CUDA)" in lines[-1]
    if "main" in code:
        assert (len(lines), done.returncode) == (1, 2)


def test_what_needs_no_tensorflow_works(tmp_path):
    # absl comes with TensorFlow, and is not there either where exported steps are costed
    code = HIDE + "HIDDEN.append('absl'); from npu_shim.cli import main; sys.exit(main(['ops', 'MatMulV2']))"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False).returncode == 0
