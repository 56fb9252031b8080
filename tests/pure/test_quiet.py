"""What `npu-shim run` hides of TensorFlow, and what it does not: the script's own warnings, ours, errors."""

import logging
import os
import subprocess
import sys
import warnings

import pytest

from npu_shim import cli
from npu_shim.cli.scripts import arguments, run
from npu_shim.compat import quiet
from npu_shim.rewriter.errors import ConfigError

REGISTERED = b"E external/xla/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: one was registered\n"
REAL = b"E external/local_xla/xla/cuda/cuda_dnn.cc:100] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.delenv(quiet.VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)


def written(capfd):
    with quiet.loading():
        os.write(2, REGISTERED + REAL + b"no end of line")
    os.write(2, b"\nlater\n")
    return capfd.readouterr().err.encode()


def test_only_registrations_are_hidden_while_tensorflow_is_loaded(silent, capfd):
    assert written(capfd).split(b"\n")[:2] == [REAL.strip(), b"no end of line"]


def test_all_of_it(silent, monkeypatch, capfd):
    monkeypatch.setenv(quiet.VARIABLE, "1")
    assert written(capfd).startswith(REGISTERED + REAL)


def test_the_last_words_of_a_process_that_tensorflow_ends_are_shown(silent):
    code = (
        "import os; from npu_shim.compat import quiet\n"
        "with quiet.loading():\n"
        "    os.write(2, b'The TensorFlow library was compiled to use AVX instructions\\n'); os.abort()"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=False)
    assert done.returncode < 0
    assert b"compiled to use AVX" in done.stderr


DEPRECATED = "From %s: %s (from %s) is deprecated and will be removed %s.\nInstructions for updating:\n%s"
ARGUMENT = "From %s: calling %s (from %s) with %s is deprecated and will be removed %s.\nInstructions for updating:\n%s"
RENAMED = "From %s: The name %s is deprecated. Please use %s instead.\n"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ((DEPRECATED, "a.py:1", "dense", "tensorflow.python.layers.core", "in a future version", "Use keras"), False),
        ((DEPRECATED, "a.py:1", "Estimator", "tensorflow_estimator.python.estimator", "later", "Use keras"), False),
        ((ARGUMENT, "a.py:1", "Zeros", "tensorflow.python.ops.init_ops", "dtype", "later", "Leave it out"), False),
        ((RENAMED, "a.py:1", "tf.Session", "tf.compat.v1.Session"), False),
        ((DEPRECATED, "a.py:1", "old_model", "my.models", "in a future version", "Use new_model"), True),
        ((RENAMED, "a.py:1", "models.old", "models.new"), True),
        (("%s is deprecated", "my option"), True),
        (("npu_shim: a line of ours",), True),
        (({"loss": 1.0},), True),
    ],
)
def test_deprecations_of_tensorflows_own_names(silent, words, shown):
    record = logging.LogRecord("tensorflow", logging.WARNING, "", 0, words[0], words[1:], None)
    assert quiet.hides(record) != shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`tf.layers.dense` is deprecated and will be removed in a future version. Please use Dense instead.", False),
        ("`layer.apply` is deprecated and will be removed in a future version.", False),
        ("`my_model` is deprecated and will be removed in a future version.", True),
        ("tf.layers.dense is what I use", True),
    ],
)
def test_warnings_of_keras(silent, text, shown):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        quiet.install()
        warnings.warn(text, UserWarning, stacklevel=1)
    assert bool(seen) == shown


def test_without_a_command_there_is_help(capsys, monkeypatch):
    monkeypatch.setenv(quiet.LEVEL, quiet.ERRORS_ONLY)
    assert cli.main([]) == 0
    assert "npu-shim [-h] [--version] COMMAND" in capsys.readouterr().out


def test_an_option_that_stands_alone():
    assert arguments.split("run", ["--verbose", "--engine", "session", "a.py", "--verbose"], run.OPTIONS) == (
        [("--verbose", ""), ("--engine", "session")], ["a.py", "--verbose"],
    )  # fmt: skip
    with pytest.raises(ConfigError, match="--verbose takes no value, got '2'"):
        arguments.split("run", ["--verbose=2", "a.py"], run.OPTIONS)
