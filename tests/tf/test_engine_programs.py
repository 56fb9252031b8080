"""The programs of a session's steps: those that another one replaces are freed."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import tensorflow.compat.v1 as tf

from npu_shim.engine.device.programs import Loading
from npu_shim.engine.runtime.loading import Programs
from npu_shim.engine.runtime.runs import Known

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="the engine needs TensorFlow 2.15")


@dataclass
class Described:
    iterations: int = 1
    results: tuple = ()
    own_rows: tuple = ()


class Device:
    platform = where = "cpu"

    def __init__(self):
        self.held, self.count = {}, 0

    def load(self, described, content, cache):
        self.count += 1
        self.held[self.count] = described.iterations
        return Loading(self.count, False, "", ())

    def unload(self, number):
        del self.held[number]


def test_a_loop_takes_the_place_of_the_program_of_one_step_which_is_freed():
    programs = Programs(None, "")
    programs.device = device = Device()
    prepared = SimpleNamespace(graph_def=tf.GraphDef())
    part = SimpleNamespace(
        constants=(), feeds=(), bundles=None, prepared=prepared, meeting=None,
        compiled=lambda *_: (Described(), b""),
    )  # fmt: skip
    known = Known("a run", step=SimpleNamespace(parts=[part], cut=SimpleNamespace(places={})))
    request = SimpleNamespace(text="a run")
    one = programs.loaded(known, request, [{}])
    loop = programs.loaded(known, request, [{}] * 3)
    assert device.held == {one: 1, loop: 3}  # another thread may be about to run the first
    assert programs.current(one) == programs.current(loop) == loop
    assert device.held == {loop: 3}
    assert programs.loaded(known, request, [{}]) == loop
