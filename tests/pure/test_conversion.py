"""The migration tool: text in, text out."""

import ast
import sys

import pytest

from npu_shim.compat.conversion import files as conversion_files
from npu_shim.compat.conversion import scripts as conversion
from npu_shim.rewriter.errors import ConfigError

pytestmark = pytest.mark.skipif(sys.version_info < (3, 9), reason="needs Python 3.9, whose ast says where code ends")
HEAD = "import tensorflow as tf\n"
ADDED = "from npu_bridge.npu_init import *\n"


def converted(body, distributed=None):
    script = conversion.convert(HEAD + body, distributed)
    assert script.text.startswith(HEAD + ADDED)
    return script.text[len(HEAD + ADDED) :]


# what is written -> what it becomes
EVERYWHERE = [
    ("s = tf.Session()", "s = tf.Session(config=npu_config_proto())"),
    ("s = tf.Session(config=c)", "s = tf.Session(config=npu_config_proto(config_proto=c))"),
    ('s = tf.Session("", g, c)', 's = tf.Session("", g, npu_config_proto(config_proto=c))'),
    (
        "s = tf.compat.v1.InteractiveSession(graph=g)",
        "s = tf.compat.v1.InteractiveSession(graph=g, config=npu_config_proto())",
    ),
    (
        "s = tf.train.MonitoredTrainingSession(\n    config=c,  # mine\n    hooks=h,\n)",
        "s = tf.train.MonitoredTrainingSession(\n    config=npu_config_proto(config_proto=c),  # mine\n    hooks=h,\n)",
    ),
    (
        "with sv.managed_session(master) as s: pass",
        "with sv.managed_session(master, config=npu_config_proto()) as s: pass",
    ),
    (
        "o = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(opt_level=1))",
        (
            "o = npu_graph_options(graph_options=tf.GraphOptions(optimizer_options=npu_optimizer_options("
            "optimizer_options=tf.OptimizerOptions(opt_level=1))))"
        ),
    ),
    (
        "e = tf.estimator.Estimator(m, config=tf.estimator.RunConfig(model_dir=d))",
        (
            "e = tf.estimator.Estimator(m, config=npu_run_config_init(run_config=tf.estimator.RunConfig(model_dir=d, "
            "save_summary_steps=0)))"
        ),
    ),
    (
        "e = tf.estimator.DNNClassifier([8], f)",
        "e = tf.estimator.DNNClassifier([8], f, config=npu_run_config_init())",
    ),
    ("x = tf.nn.dropout(x, 0.5)", "x = npu_ops.dropout(x, 0.5)"),
    ("x = tf.nn.dropout(x, rate=r + 0.1, seed=3)", "x = npu_ops.dropout(x, keep_prob=1 - (r + 0.1), seed=3)"),
    (
        'def gelu(x):\n    """Gauss."""\n    y = x * x\n    return y  # done\n',
        'def gelu(x):\n    """Gauss."""\n    return npu_unary_ops.gelu(x)  # done\n',
    ),
    ("s = tf.train.experimental.FixedLossScale(loss_scale_value=8)", "s = FixedLossScaleManager(loss_scale=8)"),
    (
        "s = tf.train.experimental.DynamicLossScale()",
        "s = ExponentialUpdateLossScaleManager(init_loss_scale=2**15, incr_every_n_steps=2000, incr_ratio=2)",
    ),
    (
        "s = tf.train.experimental.DynamicLossScale(8.0, 10, 4.0)",
        "s = ExponentialUpdateLossScaleManager(8.0, 10, incr_ratio=4.0)",
    ),
    (
        "o = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, loss_scale=s)",
        "o = NPULossScaleOptimizer(opt, loss_scale_manager=s)",
    ),
    ("d = dataset.map(f).batch(4)", "d = dataset.map(f).batch(4, drop_remainder=True)"),
    ("d = ds.batch(4, drop_remainder=False)", "d = ds.batch(4, drop_remainder=False)"),
    ('with tf.device("/gpu:0"): pass', 'with tf.device("/cpu:0"): pass'),
    ("s = tf.distribute.MirroredStrategy(devices=d)", "s = npu_strategy.NPUStrategy()"),
    ("o = tf.train.AdamOptimizer(1e-3)", "o = npu_tf_optimizer(opt=tf.train.AdamOptimizer(1e-3))"),
    ("o = tf.keras.optimizers.SGD(0.1)", "o = npu_keras_optimizer(tf.keras.optimizers.SGD(0.1))"),
    ("tf.keras.backend.clear_session()", "npu_clear_session()"),
    ("tf.config.experimental.set_memory_growth(g, True)", "None"),
    (
        "tf.config.optimizer.set_experimental_options({})",
        "tf.config.optimizer.set_experimental_options(experimental_options)",
    ),
    (
        "e = tf.estimator.tpu.TPUEstimator(model_fn=m, config=c, use_tpu=True)",
        "e = tf.estimator.tpu.TPUEstimator(model_fn=m, config=npu_run_config_init(run_config=c), use_tpu=False)",
    ),
    ("x = 'ä'; s = tf.Session()", "x = 'ä'; s = tf.Session(config=npu_config_proto())"),
]


@pytest.mark.parametrize(("body", "expected"), EVERYWHERE)
def test_what_becomes_of_a_line(body, expected):
    assert converted(body + "\n") == expected + "\n"


UNTOUCHED = [
    "x = session.run(y)",
    "x = loader.batch(4)",  # whose method that is cannot be told
    "x = np.nn.dropout(x)",
    "def gelu(): return 1",
    "s = tf.Session(**arguments)",
    "g = tf.gradients(loss, x)",
    "m.fit(x, callbacks=c)",
]


@pytest.mark.parametrize("body", UNTOUCHED)
def test_what_is_not_meant_stays(body):
    assert converted(body + "\n") == body + "\n"


def test_what_is_left_to_do_by_hand_is_told_with_its_line():
    script = conversion.convert(HEAD + "x = loader.batch(4)\ns = tf.Session(**arguments)\n")
    assert [line for line, _ in script.left] == [2, 3]
    assert "drop_remainder=True" in script.left[0][1]


def test_several_ranks():
    appended = "m.fit(x, callbacks=npu_callbacks_append(callbacks_list=c))\n"
    assert converted("m.fit(x, callbacks=c)\n", "horovod") == appended
    assert converted("g = tf.gradients(y, x)\n", "tf_strategy") == "g = npu_allreduce(tf.gradients(y, x))\n"
    wrapped = "o = npu_distributed_optimizer_wrapper(tf.train.AdamOptimizer())\n"
    assert converted("o = tf.train.AdamOptimizer()\n", "tf_strategy") == wrapped
    assert converted("o = hvd.DistributedOptimizer(tf.train.AdamOptimizer())\n", "horovod") == wrapped
    scaled = "o = tf.train.experimental.MixedPrecisionLossScaleOptimizer(p, s)\n"
    assert converted(scaled, "horovod") == "o = NPULossScaleOptimizer(p, s, is_distributed=True)\n"
    horovod = "hvd.init()\nh = [hvd.BroadcastGlobalVariablesHook(0)]\nn = hvd.size() + hvd.local_rank()\n"
    bridged = "None\nh = [NpuEmptyHook()]\nn = get_npu_rank_size() + get_npu_local_rank_id()\n"
    assert converted(horovod, "horovod") == bridged
    script = conversion.convert("import horovod.tensorflow as hvd\nhvd.init()\n", "horovod")
    assert script.text == "pass\n" + ADDED + "None\n"


def test_main_opens_and_closes_the_device():
    main = 'if __name__ == "__main__":\n    train()\n'
    assert converted(main) == (
        'if __name__ == "__main__":\n    (npu_sess, npu_shutdown) = init_resource()\n    train()\n'
        "    shutdown_resource(npu_sess, npu_shutdown)\n    close_session(npu_sess)\n"
    )
    keras = "layer = tf.keras.layers.Dropout(0.5)\n" + main
    text = conversion.convert(HEAD + keras).text
    assert ADDED + "from npu_bridge.estimator.npu import npu_convert_dropout\n" in text
    assert "npu_sess = set_keras_session_npu_config()\n    train()\n    close_session(npu_sess)\n" in text


def test_a_script_without_imports_or_a_last_newline():
    assert conversion.convert("").text == ADDED
    assert conversion.convert("import os").text == "import os\n" + ADDED


def test_lines_are_pythons():
    body = "\x0c\nx = 'a\u2028b'; s = tf.Session()\r\ns = tf.Session()\n"
    assert converted(body) == body.replace("tf.Session()", "tf.Session(config=npu_config_proto())")


def test_bad_input_is_named():
    with pytest.raises(ConfigError, match=r"line 1 is not Python"):
        conversion.convert("print 3")
    with pytest.raises(ConfigError, match=r"'horovd' \(did you mean 'horovod'\?\)"):
        conversion.convert("", "horovd")


def test_a_folder_is_converted_into_a_new_one(tmp_path, capsys):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "train.py").write_text(HEAD + "s = tf.Session()\n")
    (tmp_path / "in" / "sub" / "old.py").write_text("print 3\n")
    (tmp_path / "in" / "data.txt").write_text("as it is")
    arguments = ["-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "-r", str(tmp_path / "report"), "-c"]
    assert conversion_files.main(arguments) == 1
    assert (tmp_path / "out" / "train.py").read_text() == HEAD + ADDED + "s = tf.Session(config=npu_config_proto())\n"
    assert (tmp_path / "out" / "data.txt").read_text() == "as it is"
    assert (tmp_path / "in" / "train.py").read_text() == HEAD + "s = tf.Session()\n"
    assert "old.py: npu_shim: convert_tf2npu: line 1" in (tmp_path / "report" / "failed_report.txt").read_text()
    assert "train.py:2: config -> npu_config_proto" in (tmp_path / "report" / "success_report.txt").read_text()
    assert "1 edits, 0 places left to do by hand, 1 scripts failed" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        conversion_files.main(arguments)
    assert "exists already" in capsys.readouterr().err


def test_what_is_converted_stays_as_it_is():
    """Regression: it was wrapped again, npu_tf_optimizer(opt=npu_tf_optimizer(...)), and imported the bridge twice."""
    once = conversion.convert(HEAD + "o = tf.train.AdamOptimizer()\n").text
    again = conversion.convert(once)
    assert (again.text, again.done) == (once, ())
    assert again.left == ((2, "imports npu_bridge already, left as it is"),)


def test_scripts_in_other_encodings(tmp_path):
    """Regression: the first script in another encoding ended the conversion of a folder."""
    (tmp_path / "in").mkdir()
    text = "# -*- coding: gbk -*-\n# \u8bad\u7ec3\n" + HEAD + "s = tf.Session()\n"
    (tmp_path / "in" / "gbk.py").write_bytes(text.encode("gbk"))
    (tmp_path / "in" / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "in" / "null.py").write_bytes(b"x = 1\0\n")
    counts = conversion_files.convert_folder(str(tmp_path / "in"), str(tmp_path / "out"), str(tmp_path / "report"))
    assert counts == (1, 0, 2)
    assert "tf.Session(config=npu_config_proto())" in (tmp_path / "out" / "gbk.py").read_bytes().decode("gbk")
    assert (tmp_path / "out" / "latin.py").read_bytes() == b"# caf\xe9\n"
    failed = (tmp_path / "report" / "failed_report.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in failed] == ["latin.py", "null.py"]


@pytest.mark.parametrize("main", [
    "if __name__ == '__main__':\n\ttrain()\n\ttest()\n",
    "if __name__ == '__main__': train(); test()\n",
])  # fmt: skip
def test_main_in_tabs_and_in_one_line(main):
    """Regression: what came out was no Python."""
    [block] = [node for node in ast.parse(converted(main)).body if isinstance(node, ast.If)]
    names = [node.value.func.id for node in block.body if hasattr(node.value.func, "id")]
    assert names == ["init_resource", "train", "test", "shutdown_resource", "close_session"]
