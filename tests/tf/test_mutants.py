"""What verifies a rewrite refuses every graph with one fault, and no right one; mutants.py draws them."""

import os

import mutants
import pytest
import random_graphs
import reference_material
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter import rewrite
from npu_shim.rewriter.errors import VerifyError

OLD = tf.__version__.startswith("1.")
TIMES = 5 if os.environ.get("NPU_SHIM_NIGHTLY") else 1
PROGRAMS = {
    "calls": ("matmul", ("call", 2, ["matmul", "tanh"]), ("call", 1, ["softmax", "matmul"])),
    "branches": ("matmul", ("cond", True, ["matmul", "bias"], ["tanh", "product"])),
    "loop": (("while", 3, ["matmul", "tanh"]), "matmul"),
    "nested": (("while", 2, [("cond", True, ["matmul"], ["exp"]), ("call", 1, ["matmul", "split"])]),),
    "array": (("array", 2, ["matmul", "tanh"]), "softmax"),
    "cases": (("case", 1, ["matmul", "exp"], ["bias"]), "matmul"),
}


def reference(name):
    """A training graph with what is fetched of it and fed."""
    about = reference_material.about(name)
    return reference_material.training_graph(name), [about["loss"], about["train_op"]], list(about["feeds"])


def program(name, version):
    """A random program's graph, as `reference`."""
    variable = not OLD  # whose gradients in a loop of version 2 are an error of TensorFlow 1.15's
    built = random_graphs.build(random_graphs.Program(PROGRAMS[name], version, True, variable))
    return built.graph_def, [*built.fetches, built.init], []


GRAPHS = {name: (reference, name) for name in ("bert_tiny_train", "lstm_lm_train", "resnet50_ref_train")}
GRAPHS.update(("%s of version %d" % (name, v), (program, name, v)) for name in PROGRAMS for v in (1, 2))
ASKED = (
    {"precision_mode": "allow_mix_precision", "device": "CPU" if OLD else "XLA"},
    {"precision_mode": "allow_fp32_to_fp16"},
    {"precision_mode": "allow_mix_precision_bf16"},
)


class Checked:
    """The checks of a rewrite, with what they were given: asked again, they take a mutant in place of the result."""

    def __init__(self, monkeypatch):
        self.seen = []
        for name, number in (("_verify", 2), ("require_same_flat", 2)):
            monkeypatch.setattr(rewrite, name, self._kept(getattr(rewrite, name), number))

    def _kept(self, check, number):
        def kept(*arguments):
            copy = tf.GraphDef()
            copy.CopyFrom(arguments[number])  # it is sorted in place afterwards
            if check.__name__ != "require_same_flat" or arguments[0].calls:
                self.seen.append((check, number, [*arguments[:number], copy, *arguments[number + 1 :]]))
            return check(*arguments)

        return kept


def refused(check, number, arguments, rng, count):
    """Draws mutants of a result and has each refused; returns what was done to those that were not."""
    taken = []
    for _ in range(count):
        what, mutant = mutants.drawn(arguments[number], rng)
        try:
            check(*arguments[:number], mutant, *arguments[number + 1 :])
            taken.append(what)
        except VerifyError:
            pass
    return taken


@pytest.mark.parametrize("name", GRAPHS)
def test_every_mutant_of_a_rewritten_graph_is_refused(name, monkeypatch):
    checked, (make, *arguments) = Checked(monkeypatch), GRAPHS[name]
    graph_def, fetches, feeds = make(*arguments)
    for options in ASKED[: 1 if TIMES == 1 else 3]:
        npu_shim.rewrite(graph_def, fetches, feeds, **options)
    assert checked.seen
    rng = mutants.seeded(name)
    for check, number, given in checked.seen:
        check(*given)  # what is right passes
        assert refused(check, number, given, rng, 8 * TIMES) == []
