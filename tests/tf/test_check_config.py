"""check_config and npu-shim check; amp levels on configs; what sessions make of levels and edited op tables."""

import json
import logging

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

import sessions  # noqa: E402

import npu_shim  # noqa: E402
from npu_shim import cli, configs  # noqa: E402
from npu_shim.options.entrances import config_proto  # noqa: E402
from npu_shim.options.entrances.run_config import NPURunConfig, session_config_of  # noqa: E402
from npu_shim.rewriter.errors import ConfigError  # noqa: E402

MIX = "allow_mix_precision"


def problems(config):
    with pytest.raises(ConfigError) as caught:
        npu_shim.check_config(config)
    return caught.value.problems


@pytest.mark.parametrize(
    "config",
    [
        tf.ConfigProto(),
        sessions.config(),
        sessions.config(precision_mode=MIX, jit_compile="auto", graph_run_mode=1, use_off_line=True),
        {},
        {"precision_mode": MIX, "use_off_line": True, "modify_mixlist": None},
    ],
    ids=["no entry", "empty entry", "right values", "empty dict", "dict"],
)
def test_nothing_to_say(config):
    assert npu_shim.check_config(config) == ()


def test_a_run_config_without_problems():
    assert npu_shim.check_config(NPURunConfig(precision_mode=MIX)) == ()


def test_every_problem_of_every_kind_at_once(tmp_path):
    custom = tmp_path / "c.cfg"
    custom.write_text("n::InputDtype:float17\nnothing\n")
    config = sessions.config(
        precison_mode=MIX, precision_mode="force_Dp32", precision_mode_v2="mixed_float16", dump_step=True,
        dump_data="sta", modify_mixlist=str(tmp_path / "absent.json"), customize_dtypes=str(custom),
        npu_shim_ops_info_dir=str(tmp_path / "nowhere"),
    )  # fmt: skip
    told = problems(config)
    assert [text.split(": ")[0] for text in told] == [
        "precison_mode", "precision_mode", "precision_mode_v2", "dump_step", "dump_data", "ops_info_dir",
        "modify_mixlist", "customize_dtypes", "customize_dtypes",
    ]  # fmt: skip
    assert told[0] == "precison_mode: unknown key, ignored (did you mean 'precision_mode'?)"
    assert "(did you mean 'force_fp32'?)" in told[1]
    assert told[3] == "dump_step: written to field 'b', expected field 's'"
    assert "(did you mean 'stats'?)" in told[4]
    assert "line 1" in told[7]
    assert "line 2" in told[8]


def test_a_path_in_the_wrong_field_is_no_empty_path():
    # the bridge reads it as "" and works without the list that the user meant
    assert problems(sessions.config(precision_mode=MIX, modify_mixlist=True)) == (
        "modify_mixlist: written to field 'b', expected field 's'",
    )


def test_a_mode_that_cannot_be_read_is_one_mistake(tmp_path):
    path = tmp_path / "m.json"
    path.write_text("{}")
    told = problems(sessions.config(precision_mode=True, modify_mixlist=str(path)))
    assert told == ("precision_mode: written to field 'b', expected field 's'",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"enable_dump": True, "dump_path": "/no/such/folder"}, "dump_path='/no/such/folder' must be a folder"),
        ({"enable_dump": True, "dump_path": ".", "dump_step": "a-b"}, "dump_step='a-b' is not of the form 0|5|10-20"),
        ({"profiling_mode": True, "profiling_options": "{"}, "profiling_options='{' must be JSON with \"output\""),
    ],
)
def test_what_a_run_would_stumble_over_is_a_problem(options, words):
    assert problems(options)[0].startswith(words)
    assert problems(sessions.config(**options))[0].startswith(words)
    assert npu_shim.check_config({**options, "enable_dump": False, "profiling_mode": False}) == ()


def test_a_run_mode_that_is_none_hides_no_other_problem():
    assert problems({"graph_run_mode": 5, "precision_mode": "fp61"})[1] == "graph_run_mode: '5' is not one of 0, 1"


def test_what_may_surprise_is_returned(tmp_path):
    path = tmp_path / "m.json"
    path.write_text('{"black-list": {"to-add": ["MatMu1V2"], "to-remove": ["MatMulV2"]}}')
    for config in (
        sessions.config(precision_mode=MIX, modify_mixlist=str(path)),
        {"precision_mode": MIX, "modify_mixlist": str(path)},
        NPURunConfig(precision_mode=MIX, modify_mixlist=str(path)),
    ):
        assert npu_shim.check_config(config) == (
            "modify_mixlist: MatMulV2: not on the black-list, so it cannot be removed from it (MatMul, _FusedMatMul)",
            "modify_mixlist: MatMu1V2: no op type of this name, so it changes nothing (did you mean 'MatMulV2'?)",
        )


def test_dicts_have_names_and_types():
    assert problems({"precision_mode": True, "graph_run_mode": True, "iterations_per_loop": "3", "dumpmode": ""}) == (
        "precision_mode: must be str, got bool True",
        "graph_run_mode: must be int, got bool True",
        "iterations_per_loop: must be int, got str '3'",
        "dumpmode: no such option (did you mean 'dump_mode'?)",
    )


def test_run_configs():
    assert problems(NPURunConfig(precision_mode="x", dump_config=None, modify_mixlist=""))[0].startswith(
        "precision_mode: 'x' is not one of"
    )
    assert problems(NPURunConfig(precision_mode=True, precision_mode_v2=3.5, aoe_mode="3")) == (
        "precision_mode: must be str, got bool True",
        "precision_mode_v2: must be str, got float 3.5",
        "aoe_mode: '3' is not one of 1, 2, 4",
    )
    assert problems(3) == ("check_config needs a ConfigProto, an NPURunConfig or a dict of options, got int",)


def test_the_code_is_that_of_the_first_problem():
    for values, code in (({"modify_mixlist": "m"}, "INTERNAL"), ({"aoe_mode": "3"}, "INVALID_ARGUMENT")):
        with pytest.raises(ConfigError) as caught:
            npu_shim.check_config(values)
        assert caught.value.code == code


def command(capsys, *argv):
    status = cli.main(["check", *map(str, argv)])
    streams = capsys.readouterr()
    return status, streams.out, streams.err


def test_check_of_flags(capsys):
    assert command(capsys) == (0, "no problem found\n", "")
    flags = ("--precision-mode", MIX, "--graph-run-mode", "0", "--use-off-line", "False", "--npu-shim-profile", "gpu")
    assert command(capsys, *flags) == (0, "no problem found\n", "")
    status, out, err = command(capsys, "--graph-run-mode", "x", "--use-off-line", "3", "--precision-mode-v2", "fp61")
    assert (status, out) == (2, "")
    named = [line.split(": ")[1] for line in err.splitlines()]
    assert named == ["graph_run_mode", "use_off_line", "precision_mode_v2"]
    assert "must be an int, got 'x'" in err
    assert "must be true or false, got '3'" in err
    assert "did you mean 'fp16'?" in err


def test_check_of_files(capsys, tmp_path):
    mixlist = tmp_path / "m.json"
    mixlist.write_text('{"black-list": {"to-add": ["Loglp"]}}')
    values = {"precision_mode": MIX, "modify_mixlist": str(mixlist)}
    as_json = tmp_path / "options.json"
    as_json.write_text(json.dumps(values))
    as_text = tmp_path / "config.pbtxt"
    as_text.write_text(str(sessions.config(**values)))
    for path in (as_json, as_text):
        status, out, err = command(capsys, "--config", path)
        assert (status, err) == (0, "")
        assert out.splitlines()[0].startswith("warning: modify_mixlist: Loglp: no op type of this name")
        # flags come on top of the file
        status, _, err = command(capsys, "--config", path, "--precision-mode", "force_fp16")
        assert status == 2
        assert err.startswith("npu_shim: modify_mixlist: needs precision_mode to be one of")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("graph_options { nothing: 1 }", "neither a JSON object nor a ConfigProto as text"),
        ("[1]", "neither a JSON object nor a ConfigProto as text"),
    ],
)
def test_check_of_files_that_cannot_be_read(capsys, tmp_path, text, words):
    path = tmp_path / "config"
    path.write_text(text)
    status, _, err = command(capsys, "--config", path)
    assert status == 2
    assert words in err
    assert command(capsys, "--config", tmp_path / "absent")[0] == 2


def test_a_level_on_a_config_proto_is_a_copy():
    config = tf.ConfigProto(allow_soft_placement=True)
    at_level = npu_shim.amp_level("O2", config)
    assert config == tf.ConfigProto(allow_soft_placement=True)
    assert at_level.allow_soft_placement
    assert config_proto.read(at_level) == {"npu_shim_amp_level": "O2", "precision_mode": MIX}
    brain = npu_shim.amp_level("O1", config, dtype=tf.bfloat16)
    assert config_proto.read(brain)["precision_mode"] == "allow_mix_precision_bf16"
    kept = npu_shim.amp_level("O2", sessions.config(use_off_line=True))
    assert len(kept.graph_options.rewrite_options.custom_optimizers) == 1
    assert config_proto.read(kept)["use_off_line"] is True
    # twice the same is the same, and other levels contradict it
    assert npu_shim.amp_level("O2", at_level) == at_level
    for call in (
        lambda: npu_shim.amp_level("O1", at_level),
        lambda: npu_shim.custom_mixed_precision(at_level, white_list=[]),
        lambda: npu_shim.amp_level("O2", sessions.config(precision_mode="force_fp16")),
        lambda: npu_shim.amp_level("O2", sessions.config(precision_mode_v2="mixed_float16")),
    ):
        with pytest.raises(ConfigError, match="already; the level chooses the precision mode"):
            call()


def test_a_level_on_a_run_config_is_a_copy():
    config = NPURunConfig(model_dir="there", iterations_per_loop=3)
    at_level = npu_shim.amp_level("O2", config)
    assert isinstance(at_level, NPURunConfig)
    assert (at_level.model_dir, at_level.iterations_per_loop) == ("there", 3)
    values = config_proto.read(session_config_of(at_level))
    assert (values["npu_shim_amp_level"], values["precision_mode"]) == ("O2", MIX)
    assert "npu_shim_amp_level" not in config_proto.read(session_config_of(config))
    assert npu_shim.check_config(at_level) == ()
    with pytest.raises(ConfigError, match="the config has precision_mode 'force_fp16' already"):
        npu_shim.amp_level("O2", NPURunConfig(precision_mode="force_fp16"))
    with pytest.raises(ConfigError, match="config must be a ConfigProto, an NPURunConfig or None, got int"):
        npu_shim.amp_level("O2", 3)


def network():
    """A small network: product, batch norm, loss; returns (loss, step)."""
    x = tf.constant(np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 2, 2, 2))
    w = tf.get_variable("w", [8, 8], initializer=tf.ones_initializer(), use_resource=True)
    images, _, _ = tf.nn.fused_batch_norm(x * tf.reduce_sum(w), [1.0, 1.0], [0.0, 0.0])
    product = tf.matmul(tf.reshape(images, [4, 8]), w)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.ones([4, 8]) / 8, logits=product))
    return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def dtypes(config, *ops):
    npu_shim.patch()
    try:
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            fetches = network()
            session.run(tf.global_variables_initializer())
            return set(sessions.Ran(session, fetches).dtypes(*ops).values())
    finally:
        npu_shim.unpatch()


# level -> dtypes that the ops really ran in
RAN = {
    "O0": {"product": "float32", "loss": "float32", "norm": "float32"},
    "O1": {"product": "float16", "loss": "float32", "norm": "float32"},
    "O2": {"product": "float16", "loss": "float32", "norm": "float32"},
    "O3": {"product": "float16", "loss": "float32", "norm": "float16"},
    "auto": {"product": "float16", "loss": "float32", "norm": "float32"},
}
OPS = {
    "product": ("MatMul", "_FusedMatMul"),
    "loss": ("SoftmaxCrossEntropyWithLogits", "Log"),
    "norm": ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"),
}


@pytest.mark.parametrize("level", RAN)
def test_what_sessions_run_at_a_level(level):
    config = npu_shim.amp_level(level, tf.ConfigProto())
    assert {part: dtypes(config, *OPS[part]) for part in OPS} == {part: {RAN[level][part]} for part in OPS}


def test_sessions_read_an_edited_op_table(tmp_path):
    folder = tmp_path / "copy"
    assert cli.main(["ops", "--copy-to", str(folder)]) == 0
    rows = json.loads((folder / "matrix.json").read_text())
    rows["MatMulV2"] = {"precision_reduce": {"flag": "false"}, "tensorflow": rows["MatMulV2"]["tensorflow"]}
    (folder / "matrix.json").write_text(json.dumps(rows))
    shipped = sessions.config(precision_mode=MIX, npu_shim_ops_info_dir=configs.folder("ascend910"))
    assert dtypes(shipped, "MatMul", "_FusedMatMul") == {"float16"}
    edited = sessions.config(precision_mode=MIX, npu_shim_ops_info_dir=str(folder))
    assert dtypes(edited, "MatMul", "_FusedMatMul") == {"float32"}


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"npu_shim_ops_info_dir": "/no/such/folder"}, tf.errors.InternalError, "ops_info_dir: '/no/such/folder'"),
        ({"customize_dtypes": "/no/such/file"}, tf.errors.InternalError, "customize_dtypes: file '/no/such/file'"),
        ({"npu_shim_amp_level": "O4"}, tf.errors.InvalidArgumentError, "npu_shim_amp_level: 'O4'"),
        ({"npu_shim_white_list": "MatMu1"}, tf.errors.InvalidArgumentError, "did you mean 'MatMul'"),
    ],
)
def test_errors_of_a_first_run(values, error, words):
    with pytest.raises(error) as caught:
        dtypes(sessions.config(**{"precision_mode": MIX, **values}), "MatMul")
    assert words in str(caught.value)


def test_unmatched_names_reach_the_log(tmp_path, caplog, monkeypatch):
    path = tmp_path / "m.json"
    path.write_text('{"black-list": {"to-add": ["MatMu1V22"]}}')  # logged once a process, so a name of its own
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    with caplog.at_level(logging.WARNING, "npu_shim"):
        dtypes(sessions.config(precision_mode=MIX, modify_mixlist=str(path)), "MatMul")
    assert any("MatMu1V22: no op type of this name" in record.getMessage() for record in caplog.records)
