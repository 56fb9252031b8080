"""The passes that make each program of a run a graph of its own: text in, text out."""

import module_text
import pytest
import tensorflow.compat.v1 as tf
from passes_as_text import after, stays

from npu_shim.engine import pipeline as engine
from npu_shim.engine.partition.cut import Cut, Place, Program
from npu_shim.rewriter.ir import text
from npu_shim.xla.passes import pruning
from npu_shim.xla.sources import Argument

WAITS = """
n:NoOp x:Placeholder{dtype=float32, shape=<?>} y:Exp{T=float32}(x, ^n, ^k) k:NoOp
"""
REPORTS = """
x:Placeholder{dtype=float32} w:Print{T=float32, U=[]}(x, ^x) c:CheckNumerics{T=float32, message=''}(w)
d:CheckNumerics{T=float32, message=''}(x)
"""
ASSERTIONS = """
p:Placeholder{dtype=bool} a:Assert{T=[bool]}(p, p) b:Assert{T=[bool]}(p, p)
i:If{Tcond=bool, Tin=[], Tout=[], then_branch=@f, else_branch=@g}(p)
function f() -> () end
function g() -> () end
"""
CUT_OFF = """
i:IteratorGetNext(h) h:IteratorV2 x:Placeholder{dtype=float32, shape=<?>} d:PlaceholderWithDefault{dtype=float32}(o)
o:Const y:Add{T=float32}(i:1, x) z:Mul{T=float32}(y, d) r:Exp{T=float32}(z)
"""


def of(places=(), **given):
    """A Division of the program with some nodes, y and r; `places` are where the others of the run are."""
    program = Program(frozenset(["y", "r"]), **{name: given[name] for name in given if name != "conditions"})
    cut = Cut(places=dict(places), programs=(program,), conditions=given.get("conditions", {}))
    return engine.Division(cut, program, ["r"], [])


def named(name, division):
    """One of the passes, as a function of a module."""
    [run] = [step.run for step in engine.ENGINE.passes if step.name == name]
    return lambda module, context: run(module, division)


def test_a_program_waits_for_nothing_of_other_parts():
    division = of({"n": Place.FEED, "y": Place.PROGRAM})
    assert after(named("drop-waits-for-other-parts", division), WAITS) == (
        "n:NoOp\nx:Placeholder{dtype=float32, shape=<?>}\ny:Exp{T=float32}(x, ^k)\nk:NoOp\n"
    )
    stays(named("drop-waits-for-other-parts", of({"y": Place.PROGRAM})), WAITS)


def test_what_the_session_reports_is_forwarded_in_the_program():
    division = of(effects=("w", "d", "gone"))
    assert after(named("forward-reports", division), REPORTS) == (
        "x:Placeholder{dtype=float32}\nw:Identity{T=float32}(x, ^x)\nc:CheckNumerics{T=float32, message=''}(w)\n"
        "d:Identity{T=float32}(x)\n"
    )
    stays(named("forward-reports", of(effects=("x",))), REPORTS)


def test_assertions_that_hold_are_none():
    division = of(conditions={"a": "p:0", "i": "p:0", "gone": "p:0"})
    shown = after(named("settle-assertions", division), ASSERTIONS)
    assert "a:NoOp\n" in shown
    assert "b:Assert{T=[bool]}(p, p)\n" in shown
    assert "else_branch=@f" in shown
    stays(named("settle-assertions", of()), ASSERTIONS)


def test_a_program_has_placeholders_for_what_others_give():
    module = module_text.parse(CUT_OFF)
    feeds = [Argument(name, tf.float32, tf.TensorShape([None])) for name in ("i:1", "d:0", "o:0")]
    assert pruning.extract(module, ["r"], feeds) == ["i_1/fed", "d", "o_0/fed"]
    assert text.show(module) == (
        "d:Placeholder{dtype=float32, shape=<?>}\ni_1/fed:Placeholder{dtype=float32, shape=<?>}\n"
        "o_0/fed:Placeholder{dtype=float32, shape=<?>}\nr:Exp{T=float32}(z)\n"
        "x:Placeholder{dtype=float32, shape=<?>}\ny:Add{T=float32}(i_1/fed, x)\nz:Mul{T=float32}(y, d)\n"
    )


def test_a_part_that_is_not_there_is_told():
    with pytest.raises(KeyError):
        pruning.extract(module_text.parse(WAITS), ["z"], [])
