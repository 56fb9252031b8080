"""`npu-shim tune` on whole scripts: planted faults are found, what is found trains as float32; mistakes are one error.

More faults and models: scripts/planted_training.py has them.
"""

import json
import pathlib
import re
import shutil

import forked
import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "planted_training.py"
TUNE = "npu-shim tune --out out.json "


@pytest.fixture(scope="module")
def together():
    with forked.server(900) as run:
        yield run


def tuned(together, folder, words, script=None):
    if script is None:
        shutil.copy(str(SCRIPT), str(folder / "train.py"))
    else:
        (folder / "train.py").write_text(script)
    (done,) = together([(TUNE + words, folder)])
    return done


def kept(folder):
    """Names of the nodes and op types that were written."""
    nodes, types = folder / "out.customize_dtypes.txt", folder / "out.json"
    single = [line.partition("::")[0] for line in nodes.read_text().splitlines()] if nodes.exists() else []
    return single + (json.loads(types.read_text())["black-list"]["to-add"] if types.exists() else [])


CASES = [
    ("convolution", "square", "after/product"), ("transformer", "mask", "planted"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "fault", "node"), CASES)
def test_a_planted_fault_is_mended_and_products_stay_low(together, tmp_path, model, fault, node):
    done = tuned(together, tmp_path, "train.py %s %s 40" % (model, fault))
    assert done.status == 0, done.output
    assert any(name.endswith(node) for name in kept(tmp_path)), done.output
    assert int(re.search(r"after (\d+) trials", done.output).group(1)) <= 10
    _, low = re.search(r"share of their operations +([\d.]+) % +([\d.]+) %", done.output).groups()
    assert float(low) >= 90
    before, after = re.search(r"deviation of the loss +(\S+) +(\S+)", done.output).groups()
    assert float(after) <= 0.05 < float(before)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".tune") == []


def test_a_healthy_model_has_nothing_to_tune(together, tmp_path):
    done = tuned(together, tmp_path, "train.py convolution none 30")
    assert done.status == 0
    assert "nothing is to be tuned" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
