"""The op information files that a user edits: where they are read from, what is wrong with them, npu-shim ops."""

import json
import os
import shutil

import pytest

from npu_shim import cli, configs
from npu_shim.options import precision
from npu_shim.options import table as options
from npu_shim.rewriter.errors import ConfigError


@pytest.fixture
def copy(tmp_path):
    """An editable copy of the shipped files."""
    folder = tmp_path / "copy"
    shutil.copytree(configs.folder("ascend910"), str(folder))
    return folder


def listed(op, **values):
    return precision.resolve(values).table.entries[op].listed


def write(folder, name, rows):
    (folder / name).write_text(json.dumps(rows))


def test_an_edited_copy_is_read_by_option_and_by_environment(copy, monkeypatch):
    rows = json.loads((copy / "matrix.json").read_text())
    rows["MatMulV2"]["precision_reduce"] = {"flag": "false"}
    write(copy, "matrix.json", rows)
    assert listed("MatMul") == "white"
    assert listed("MatMul", npu_shim_ops_info_dir=str(copy)) == "black"
    assert listed("MatMul", npu_shim_ops_info_dir=str(copy), npu_shim_profile="gpu") == "black"
    monkeypatch.setenv("NPU_SHIM_OPS_INFO_DIR", str(copy))
    assert listed("MatMul") == "black"
    # the option wins over the environment
    assert listed("MatMul", npu_shim_ops_info_dir=configs.folder("ascend910")) == "white"
    monkeypatch.setenv("NPU_SHIM_OPS_INFO_DIR", "")
    assert listed("MatMul") == "white"


def test_a_file_that_is_edited_meanwhile_is_read_again(copy):
    values = {"npu_shim_ops_info_dir": str(copy)}
    assert listed("Relu", **values) == "gray"
    rows = json.loads((copy / "activation.json").read_text())
    rows["Relu"] = {"precision_reduce": {"flag": "true"}}
    write(copy, "activation.json", rows)
    assert listed("Relu", **values) == "white"


def test_a_later_file_wins_and_a_warning_names_both(copy):
    write(copy, "zz_mine.json", {"Softplus": {"precision_reduce": {"flag": "false"}}})
    chosen = precision.resolve({"npu_shim_ops_info_dir": str(copy)})
    assert chosen.table.entries["Softplus"].listed == "black"
    first = precision.profile_table("ascend910").files["Softplus"]
    assert chosen.warnings == (
        "op Softplus is in %s and in %s; the later one counts"
        % (copy / os.path.basename(first), copy / "zz_mine.json"),
    )
    write(copy, "aa_mine.json", {"Mine": {"precision_reduce": {"flag": "true"}, "tensorflow": ["Softsign"]}})
    chosen = precision.resolve({"npu_shim_ops_info_dir": str(copy)})
    assert chosen.table.entries["Softsign"].listed == "gray"
    assert any(text.startswith("TensorFlow op Softsign is in op Mine of ") for text in chosen.warnings)


def test_the_later_file_counts_for_an_op_that_an_earlier_file_has_under_another_name(copy):
    mine = {"Mine": {"precision_reduce": {"flag": "true"}, "tensorflow": ["Softsign"]}}
    write(copy, "aa_mine.json", mine)
    write(copy, "zz_mine.json", mine)
    chosen = precision.resolve({"npu_shim_ops_info_dir": str(copy)})
    assert chosen.table.entries["Softsign"].name == "Mine"


def test_the_vendors_own_keys_are_passed_over(tmp_path):
    row = {
        "input0": {"dtype": "float16,float", "format": "ND", "name": "x"},
        "opFile": {"value": "Null"},
        "precision_reduce": {"flag": "true"},
        "dynamicShapeSupport": {"flag": "true"},
    }
    write(tmp_path, "aic-ascend910-ops-info.json", {"Relu": row, "Add": {"precision_reduce": {}}})
    chosen = precision.resolve({"npu_shim_ops_info_dir": str(tmp_path)})
    assert {op: entry.listed for op, entry in chosen.table.entries.items()} == {"Relu": "white", "Add": "gray"}


BAD_FILES = {
    "": "is not JSON",
    "{": "is not JSON",
    "[]": "expected a JSON object of op types",
    '{"A": 3}': "expected a JSON object of op types",
    '{"A": {"precision_reduce": {"flag": "True"}}}': "op A: precision_reduce.flag is 'True', expected 'true'",
    '{"A": {"precision_reduce": {"flag": true}}}': "op A: precision_reduce.flag is True, expected 'true'",
    '{"A": {"precision_reduce": "true"}}': "op A: precision_reduce is 'true', expected an object with 'flag'",
    '{"A": {"role": "move"}}': r"op A: role is 'move', expected one of .* \(did you mean 'moves'\?\)",
    '{"A": {"role": ["moves"]}}': "op A: role is",
    '{"A": {"dtypes": ["float17"]}}': r"op A: dtypes has 'float17', .*\(did you mean 'float16'\?\)",
    '{"A": {"dtypes": "float16"}}': "op A: dtypes is 'float16', expected a list of strings",
    '{"A": {"keep": [1]}}': "op A: keep is",
    '{"A": {"tensorflow": {}}}': "op A: tensorflow is",
    '{"A": {}, "A": {}}': "'A' appears twice",
    '{"A": {"role": "moves", "role": "source"}}': "'role' appears twice",
    "[" * 100000: "is not JSON",
}


@pytest.mark.parametrize("text", BAD_FILES, ids=lambda text: text[:45] or "empty")
def test_a_bad_file_is_named(text, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ConfigError, match=BAD_FILES[text]) as caught:
        precision.resolve({"npu_shim_ops_info_dir": str(tmp_path)})
    assert caught.value.code == "INTERNAL"
    assert "op information file %s" % (tmp_path / "bad.json") in str(caught.value)


def test_a_missing_or_empty_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for folder, word in (("absent", "No such file"), ("file", "Not a directory"), (".", "has no op information file")):
        with pytest.raises(ConfigError, match=word) as caught:
            precision.resolve({"npu_shim_ops_info_dir": str(tmp_path / folder)})
        assert caught.value.code == "INTERNAL"
        assert caught.value.problems[0].startswith("ops_info_dir: '")
    with pytest.raises(ConfigError, match="null"):
        precision.resolve({"npu_shim_ops_info_dir": "a\0b"})


def test_our_own_options_go_by_short_names_as_keywords():
    values = options.of_keywords({"ops_info_dir": "d", "profile": "gpu", "amp_level": None, "precision_mode": None})
    assert values == {"npu_shim_ops_info_dir": "d", "npu_shim_profile": "gpu"}
    assert options.of_keywords({"npu_shim_profile": "gpu"}) == {"npu_shim_profile": "gpu"}
    with pytest.raises(ConfigError, match=r"unknown option 'ops_dir' \(did you mean 'ops_info_dir'\?\)"):
        options.of_keywords({"ops_dir": "d"})


def command(capsys, *argv):
    status = cli.main(["ops", *map(str, argv)])
    streams = capsys.readouterr()
    return status, streams.out, streams.err


def test_ops_prints_an_op_under_each_of_its_names(capsys):
    status, out, _ = command(capsys, "FusedBatchNormV3")
    assert status == 0
    for name in ("BatchNorm", "BNTrainingUpdate", "FusedBatchNorm"):
        assert command(capsys, name)[1] == out
    lines = dict(line.strip().split("  ", 1) for line in out.splitlines()[1:])
    words = {key.strip(): value.strip() for key, value in lines.items()}
    entry = precision.profile_table("ascend910").entries["FusedBatchNormV3"]
    assert out.startswith("BatchNorm\n")
    assert (words["list"], words["role"], words["dtypes"], words["keep"]) == ("gray", "computes", "all", "U")
    assert words["TensorFlow"] == ", ".join(entry.tensorflow)
    assert "BNTrainingReduce, BNTrainingUpdate," in words["variants"]
    assert words["note"] == entry.note
    assert words["file"] == configs.folder("ascend910", "normalization.json")


def test_ops_knows_profiles_matrix_ops_and_what_has_no_list(capsys):
    assert "dtypes      float16\n" in command(capsys, "MatMul")[1]
    assert "dtypes      all\n" in command(capsys, "MatMul", "--profile", "gpu")[1]
    assert "computes, a matrix or convolution op" in command(capsys, "MatMul")[1]
    assert "list        none (moves)" in command(capsys, "Reshape")[1]


def test_ops_prints_both_meanings_of_a_name(capsys):
    _, out, _ = command(capsys, "BatchMatMulV2")
    assert [line for line in out.splitlines() if line[0] != " "] == ["BatchMatMulV2", "BatchMatMul"]


def test_ops_without_a_name_is_a_table_of_all(capsys):
    status, out, _ = command(capsys)
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert status == 0
    assert names == sorted(precision.profile_table("ascend910").files)


def test_ops_that_are_not_known(capsys):
    status, out, err = command(capsys, "matmulv2")
    assert (status, out) == (2, "")
    assert err == "npu_shim: matmulv2: no op type of this name in profile ascend910 (did you mean 'MatMulV2'?)\n"
    assert command(capsys, "MatMul", "--profile", "gpuu")[0] == 2
    status, out, _ = command(capsys, "KLDiv")
    assert status == 0
    assert "without a TensorFlow op" in out


def test_copy_to_makes_what_can_be_read_and_edited(capsys, tmp_path):
    folder = tmp_path / "mine"
    status, out, _ = command(capsys, "--copy-to", folder)
    assert status == 0
    assert str(folder) in out
    shipped = configs.folder("ascend910")
    assert sorted(os.listdir(str(folder))) == sorted(name for name in os.listdir(shipped) if name.endswith(".json"))
    assert precision.resolve({"npu_shim_ops_info_dir": str(folder)}).table.entries == (
        precision.resolve({}).table.entries
    )
    rows = json.loads((folder / "activation.json").read_text())
    write(folder, "activation.json", {**rows, "Relu": {"precision_reduce": {"flag": "true"}}})
    _, out, _ = command(capsys, "Relu", "--ops-info-dir", folder)
    assert "list        white" in out
    assert str(folder) in out


def test_copy_to_overwrites_nothing_and_leaves_nothing_half_written(capsys, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.json").write_text("{}")
    (tmp_path / "file").write_text("mine")
    before = sorted(os.listdir(str(tmp_path)))
    for name in ("full", "file"):
        status, _, err = command(capsys, "--copy-to", tmp_path / name)
        assert status == 2
        assert "exists already" in err
    assert command(capsys, "--copy-to", tmp_path / "absent" / "inner")[0] == 2
    copyfile, count = shutil.copyfile, []

    def full_disk(source, target):
        count.append(source)
        if len(count) > 3:
            raise OSError(28, "No space left on device")
        return copyfile(source, target)

    monkeypatch.setattr(shutil, "copyfile", full_disk)
    status, _, err = command(capsys, "--copy-to", tmp_path / "new")
    assert (status, len(count)) == (2, 4)
    assert "No space left" in err
    assert sorted(os.listdir(str(tmp_path))) == before
    monkeypatch.undo()
    (tmp_path / "empty").mkdir()
    assert command(capsys, "--copy-to", tmp_path / "empty")[0] == 0


def test_a_folder_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ConfigError) as raised:
        precision.profile_table("ascend910", str(tmp_path / "none"))
    assert raised.value.problems == (
        "ops_info_dir: '%s' cannot be read: No such file or directory" % (tmp_path / "none"),
    )
    with pytest.raises(ConfigError, match="cannot be read: embedded null"):
        precision.profile_table("ascend910", "a\0")
