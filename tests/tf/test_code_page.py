"""docs/code.md: its files from a precision_mode to the inserted Cast are those that run; the picture of the whole."""

import pathlib
import re
import sys

import numpy as np
import overview
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST = 15


def stops(section):
    """The files that a section of the page names one after another."""
    text = (ROOT / "docs" / "code.md").read_text().partition("\n## %s\n" % section)[2].partition("\n## ")[0]
    return re.findall(r"(?m)^\d+\. `((?:npu_shim|rewriter)/[\w/]+\.\w+)`", text)


def entered(run):
    """The files of this repository that a function enters, in order."""
    files = []

    def note(frame, event, _):
        path = pathlib.Path(frame.f_code.co_filename)
        if event == "call" and ROOT in path.parents and path.resolve() not in files:
            files.append(path.resolve())  # rewriter/ is imported through a link

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return [path.relative_to(ROOT).as_posix() for path in files]


def test_the_way_is_the_one_that_is_gone(patched_session):
    named = stops("From a precision_mode to a Cast")
    assert 10 <= len(named) <= MOST
    assert all((ROOT / path).exists() for path in named)
    gone = entered(patched_session)
    seen = [path for path in named if path.endswith(".py")]
    assert [path for path in gone if path in seen] == seen


def test_the_way_from_a_run_to_a_rule_is_there():
    named = stops("From sess.run to a rule")
    assert 10 <= len(named) <= MOST + 1
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.fixture
def patched_session():
    npu_shim.patch()

    def run():
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [4, 4], name="x")
            y = tf.matmul(x, x, name="y")
            with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
                session.run(y, {x: np.eye(4)})

    yield run
    npu_shim.unpatch()


def test_the_picture_of_the_whole_is_that_of_the_pipelines():
    assert overview.svg() == overview.PICTURE.read_text(encoding="utf-8"), "run: python scripts/overview.py"
