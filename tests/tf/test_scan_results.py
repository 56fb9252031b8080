"""What `npu-shim scan` believes that functions and methods give is what they give here."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")

from npu_shim.compat.scan import objects

RECORD = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "versions" / "record.py"


@pytest.mark.nightly
def test_the_table_of_results_holds_for_this_tensorflow(tmp_path):
    command = [sys.executable, "-m", "npu_shim", "run", str(RECORD), str(tmp_path / "out.json"), "--results"]
    subprocess.run(command, check=True, cwd=str(tmp_path), env=dict(os.environ, NPU_SHIM_LOG="off"))
    given = json.loads((tmp_path / "out.json").read_text())["results"]
    believed = objects.rows()
    assert len(believed.keys() & given.keys()) > 400
    other = {name: kinds for name, kinds in given.items() if name in believed and not set(kinds) <= set(believed[name])}
    assert not other, "write it again: scripts/compare_versions --results"
