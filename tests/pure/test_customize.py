"""customize_dtypes: the line format, what it means for TensorFlow's ops, and every way to get it wrong."""

import pytest

from npu_shim.options import precision
from npu_shim.options.ops import customize, op_names
from npu_shim.options.ops.customize import Custom
from npu_shim.rewriter.errors import ConfigError

F, H, B = "float32", "float16", "bfloat16"


def parsed(text):
    return customize.parse(text, "c.cfg", precision.profile_table("ascend910"))


LINES = {
    "a/b/Relu::InputDtype:float16,int8,OutputDtype:float32": ("a/b/Relu", (H, "int8"), (F,)),
    "n::InputDtype:Float16,FLOAT,OutputDtype:BFloat16,double": ("n", (H, F), (B, "float64")),
    "n::InputDtype:,OutputDtype:float32": ("n", (), (F,)),
    "n::InputDtype:,,OutputDtype:,float32": ("n", (None, None), (None, F)),
    "n::InputDtype:float16,,OutputDtype:": ("n", (H, None), ()),
    "n::InputDtype: float16 , float16 , OutputDtype: float32 ": ("n", (H, H), (F,)),
    "n::InputDtype:float16": ("n", (H,), ()),
    "n::OutputDtype:float16": ("n", (), (H,)),
    "  n::InputDtype:bf16,OutputDtype:bf16\t": ("n", (B,), (B,)),
    "OpTypes::InputDtype:float16,OutputDtype:float16": ("OpTypes", (H,), (H,)),
}


@pytest.mark.parametrize("line", LINES)
def test_lines_by_name(line):
    name, inputs, outputs = LINES[line]
    read = parsed(line)
    assert read.by_name == {name: Custom(inputs, outputs, 1)}
    assert (read.by_op, read.warnings, read.unmatched) == ({}, (), ())


def test_lines_by_type_stand_for_tensorflow_ops():
    # of a real script; TensorFlow's MatMul has two inputs, Ascend's a third, the bias
    read = parsed("OpType::MatMulV2:InputDtype:float16,float16,float32,OutputDtype:float32")
    expected = Custom((H, H, F), (F,), 1)
    assert read.by_op == {"MatMul": expected, "_FusedMatMul": expected}
    assert read.by_name == {}
    assert list(parsed("OpType::Softmax:InputDtype:float16,OutputDtype:float16").by_op) == ["Softmax"]
    assert list(parsed("OpType::SoftmaxV2:InputDtype:float16,OutputDtype:float16").by_op) == ["Softmax"]


def test_blank_lines_and_comments_are_passed_over_and_counted():
    read = parsed("# a comment\n\n   \n#n::wrong\nn::InputDtype:float16,OutputDtype:float16\n")
    assert {name: custom.line for name, custom in read.by_name.items()} == {"n": 5}
    assert parsed("").by_name == {}


def test_the_first_of_two_lines_counts():
    read = parsed(
        "n::InputDtype:float16,OutputDtype:float16\n"
        "n::InputDtype:float32,OutputDtype:float32\n"
        "OpType::Softmax:InputDtype:float16,OutputDtype:float16\n"
        "OpType::n:InputDtype:float16,OutputDtype:float16\n"
        "OpType::SoftmaxV2:InputDtype:float32,OutputDtype:float32\n"
        "OpType::MatMul:InputDtype:float32,OutputDtype:float32\n"
        "OpType::MatMulV2:InputDtype:float16,OutputDtype:float16\n"
    )
    assert read.by_name == {"n": Custom((H,), (H,), 1)}
    assert {op: custom.line for op, custom in read.by_op.items()} == {"Softmax": 3, "MatMul": 6, "_FusedMatMul": 7}
    where = "customize_dtypes: file 'c.cfg', line %d: %s has its dtypes from line %d already; the first counts"
    assert read.warnings[0] == where % (2, "n", 1)
    assert read.warnings[1] == where % (5, "Softmax", 3)
    assert read.warnings[2].startswith("customize_dtypes: file 'c.cfg', line 7: MatMul")


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    path = str(tmp_path / "none")
    with pytest.raises(ConfigError) as raised:
        customize.read(path, precision.profile_table("ascend910"))
    why = "npu_shim: customize_dtypes: file '%s' cannot be read: No such file or directory"
    assert str(raised.value) == why % path


@pytest.mark.parametrize(("length", "told"), [(60, "x" * 60), (61, "x" * 57 + "...")])
def test_a_long_word_is_shortened(length, told):
    with pytest.raises(ConfigError, match="line 1: '%s' is not a dtype" % told.replace(".", "[.]")):
        parsed("n::InputDtype:" + "x" * length)


def test_unknown_op_types_are_unmatched_once():
    read = parsed("OpType::matmulv2:InputDtype:float16\nOpType::matmulv2:InputDtype:float32\nOpType::KLDiv:InputDtype:")
    suggestions = [(missing.name, missing.suggestion) for missing in read.unmatched]
    assert suggestions == [("matmulv2", "MatMulV2"), ("KLDiv", None)]
    assert op_names.describe(read.unmatched[0], {"MatMul": 2}).endswith("would have met 2 nodes of this graph")
    assert op_names.describe(read.unmatched[0]).startswith("customize_dtypes: matmulv2: no op type")


WRONG = {
    "n": "'n', expected 'NODE::InputDtype",
    "n:InputDtype:float16": "expected 'NODE::InputDtype",
    "::InputDtype:float16": "expected 'NODE::InputDtype",
    "n::float16": "expected 'NODE::InputDtype",
    "n::inputdtype:float16": "expected 'NODE::InputDtype",
    "OpType::MatMul": "expected 'NODE::InputDtype",
    "OpType::MatMul:float16": "expected 'NODE::InputDtype",
    "OpType:::InputDtype:float16": "expected 'NODE::InputDtype",
    "n::InputDtype:float17,OutputDtype:float16": r"'float17' is not a dtype \(did you mean 'float16'\?\)",
    "n::InputDtype:float16OutputDtype:float16": "a comma is missing before 'OutputDtype:'",
    "n::InputDtype:float16,OutptDtype:float16": "'OutptDtype:float16' is not a dtype",
    "n::OutputDtype:float16,InputDtype:float16": "'InputDtype:float16' is not a dtype",
    "n::InputDtype:float16;OutputDtype:float16": "a comma is missing",
    "n::InputDtype:resource": "'resource' is not a dtype",
    "n" * 1005 + "::InputDtype:float16": "1025 characters, at most 1024 are read",
}


@pytest.mark.parametrize("line", WRONG, ids=lambda line: line[:40])
def test_wrong_lines(line):
    with pytest.raises(ConfigError, match=WRONG[line]) as caught:
        parsed("# first\n" + line)
    assert caught.value.code == "INTERNAL"
    assert caught.value.problems[0].startswith("customize_dtypes: file 'c.cfg', line 2: ")


def test_all_wrong_lines_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        parsed("a\nn::InputDtype:float16\nb")
    assert [problem.split(": ")[1] for problem in caught.value.problems] == [
        "file 'c.cfg', line 1",
        "file 'c.cfg', line 3",
    ]


def test_a_line_of_exactly_the_longest_length_is_read():
    tail = "::InputDtype:float16"
    assert len(parsed("n" * (1024 - len(tail)) + tail).by_name) == 1


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = precision.profile_table("ascend910")
    (tmp_path / "c.cfg").write_bytes(b"\xef\xbb\xbfn::InputDtype:float16\r\nm::InputDtype:float32\r\n")
    assert set(customize.read("c.cfg", table).by_name) == {"n", "m"}
    (tmp_path / "latin.cfg").write_bytes(b"\xe9")
    for path, word in (("absent", "No such file"), (".", "Is a directory"), ("latin.cfg", "UTF-8"), ("a\0", "null")):
        with pytest.raises(ConfigError, match=word) as caught:
            customize.read(path, table)
        assert caught.value.code == "INTERNAL"
        assert caught.value.problems[0].startswith("customize_dtypes: file '")


def test_sessions_read_it_with_their_options_and_not_with_origin(tmp_path):
    path = tmp_path / "c.cfg"
    path.write_text("n::InputDtype:float16\nn::InputDtype:float16\nOpType::matmulv2:InputDtype:float16")
    chosen = precision.resolve({"precision_mode": "allow_mix_precision", "customize_dtypes": str(path)})
    assert list(chosen.customized.by_name) == ["n"]
    assert [missing.name for missing in chosen.missing] == ["matmulv2"]
    assert len(chosen.warnings) == 1
    for values in ({"precision_mode": "must_keep_origin_dtype"}, {"precision_mode_v2": "origin"}):
        origin = precision.resolve({**values, "customize_dtypes": str(path)})
        assert origin.customized is None
        assert "has no effect with" in origin.warnings[-1]
    assert precision.resolve({"customize_dtypes": ""}).customized is None
