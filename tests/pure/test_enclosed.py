"""Nodes in loops and conditionals of TensorFlow 1: text in, names out."""

import module_text

from npu_shim.xla.passes import enclosed

COND = """
x:Placeholder{dtype=float32, shape=<2>} ok:Placeholder{dtype=bool, shape=<>}
pivot:Switch{T=bool}(ok, ok) then:Identity{T=bool}(pivot:1)
s:Switch{T=float32}(x, ok) a:Relu{T=float32}(s:1) c:Const{dtype=float32, value=float32<>(1)}(^then)
b:Mul{T=float32}(a, c) m:Merge{N=2, T=float32}(s, b) y:Neg{T=float32}(m)
"""
LOOP = """
e:Enter{T=float32, frame_name="loop"}(%s) n:Merge{N=2, T=float32}(e, next) less:Less{T=float32}(n, n)
go:LoopCond(less) w:Switch{T=float32}(n, go) body:Tanh{T=float32}(w:1) next:NextIteration{T=float32}(body)
out:Exit{T=float32}(w) z:Neg{T=float32}(out)
"""


def inside(source):
    return {node.name for node in enclosed.nodes(module_text.parse(source, lambda op: None).graph)}


def test_both_sides_of_a_conditional_are_and_what_comes_behind_is_not():
    assert inside(COND) == {"pivot", "then", "s", "a", "c", "b"}


def test_a_loop_is_and_what_takes_its_result_is_not():
    assert inside(COND + LOOP % "y") == {
        "pivot", "then", "s", "a", "c", "b", "e", "n", "less", "go", "w", "body", "next",
    }  # fmt: skip


def test_a_loop_in_a_side_of_a_conditional_leaves_it_with_that():
    source = COND.replace("b:Mul{T=float32}(a, c)", "b:Mul{T=float32}(z, c)") + LOOP % "a"
    assert {"out", "z", "b"} <= inside(source)
    assert not {"m", "y", "x"} & inside(source)


def test_a_graph_without_them_has_none():
    assert inside("x:Placeholder{dtype=float32, shape=<2>} y:Neg{T=float32}(x)") == set()
