"""Each name of each module of 1.15.5's tf.contrib under its own path: found, explained, or kept out with a reason."""

import importlib
import json
import os
import pathlib
import re
import sys
from unittest import mock

import pytest

from npu_shim.compat.names import exports, names

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORIGINAL = os.environ.get("NPU_SHIM_TEST_TF115") or str(ROOT / ".venv-tf115" / "bin" / "python")
pytestmark = [
    pytest.mark.skipif(not exports.file_of("tensorflow"), reason="no TensorFlow to read"),
    pytest.mark.skipif(names.tensorflow_1(), reason="TensorFlow 1 has the real tf.contrib"),
]


@pytest.fixture(scope="module")
def compare():
    with mock.patch.object(sys, "path", [str(ROOT / "scripts" / "versions"), *sys.path]):
        return importlib.import_module("contrib")


@pytest.mark.skipif(not exports.file_of("tf_slim"), reason="tf-slim is not installed: npu-shim[contrib]")
@pytest.mark.skipif(not exports.file_of("tensorflow_estimator"), reason="this TensorFlow comes without Estimator")
@pytest.mark.skipif(
    names.resolve("tf.data.experimental.CheckpointInputPipelineHook") is None,
    reason="the table holds for TensorFlow 2.15: later ones have dropped a few more names",
)
@pytest.mark.skipif(not os.path.exists(ORIGINAL), reason="no Python with TensorFlow 1.15: NPU_SHIM_TEST_TF115")
def test_every_name_is_found_under_its_path(compare):
    folder = compare.folder_of(ORIGINAL)
    listed = list(compare.listed(folder))
    assert len(listed) > 3000
    assert compare.open_names(folder) == []
    missing = [path for path in listed if not compare.is_known(path)]
    unused = [row for row in compare.kept() if not any(re.search(row["what"], path) for path in missing)]
    assert not unused, json.dumps(unused, indent=1)


@pytest.mark.parametrize(
    ("path", "target"),
    [("rnn.python.ops.rnn_cell.NTMCell", "contrib.rnn.turing.NTMCell"),
     ("rnn.python.ops.core_rnn_cell_impl._linear", "contrib.rnn.linear.linear"),
     ("seq2seq.python.ops.beam_search_decoder._mask_probs", "contrib.seq2seq.parts._mask_probs"),
     ("seq2seq.python.ops.helper._unstack_ta", "contrib.seq2seq.parts._unstack_ta"),
     ("image.python.ops.distort_image_ops.random_hsv_in_yiq", "contrib.image.color.random_hsv_in_yiq"),
     ("lookup.lookup_ops.HashTable", "contrib.lookup.HashTable"),
     ("optimizer_v2.adam.AdamOptimizer", "tf.train.AdamOptimizer"),
     ("keras.api.keras.layers.Dense", "tf.keras.layers.Dense"),
     ("losses.python.metric_learning.metric_loss_ops.npairs_loss", "tf_slim.losses.metric_learning.npairs_loss"),
     ("framework.python.ops.variables.zero_initializer", "contrib.framework.functions.zero_initializer")],
)  # fmt: skip
def test_a_path_leads_where_the_name_is(path, target):
    assert names.contrib_target(path) == target
    module = path.rpartition(".")[0]
    assert names.is_module(module) or names.real_module(module), module


def test_a_source_is_read_as_its_package_shows_it(compare, tmp_path):
    inner = tmp_path / "some" / "python"
    inner.mkdir(parents=True)
    (tmp_path / "some" / "__init__.py").write_text(
        "from tensorflow.contrib.some.python.part import *\n"
        "from tensorflow.contrib.some.python.part import other as b\n"
        "from tensorflow.contrib.some.python import part\nfrom tensorflow.python.ops import math_ops\n"
    )
    (inner / "__init__.py").write_text("")
    (inner / "part.py").write_text(
        "import os\n__all__ = ['shown']\nshown = other = _hidden = 1\nif True:\n    class Kind: pass\n"
    )
    (inner / "part_test.py").write_text("of_a_test = 1\n")
    listed = ["some.b", "some.python.part.Kind", "some.python.part.other", "some.python.part.shown", "some.shown"]
    assert sorted(compare.listed(str(tmp_path))) == listed
