"""Passes of compiled steps that rewrite values, branches and state: text in, text out."""

import re

import pytest
import tensorflow.compat.v1 as tf
from passes_as_text import after, stays

from npu_shim.xla.passes.control_flow import branch_stacks, functionalization
from npu_shim.xla.passes.legalize.ops import uniques

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 compiles no steps")

# -- float32-kernels-on-cpu --------------------------------------------------------------------------------------------

LOW = "x:Placeholder{dtype=float16} w:Placeholder{dtype=float16}\n"
PRODUCT = "m:MatMul{T=float16}(x, w) r:Relu{T=float16}(m) n:MatMul{T=float16}(r, w) t:Neg{T=float16}(n) return t:0=t"


def test_products_on_cpus_are_float32_and_so_is_what_only_passes_values_on_between_them():
    assert after("float32-kernels-on-cpu", LOW + PRODUCT, on_cpu=True).splitlines()[2:] == [
        "m:MatMul{T=float32}(x/float32, w/float32)",
        "r:Relu{T=float32}(m/float16/float32)",
        "n:MatMul{T=float32}(r, w/float32)",
        "t:Neg{T=float16}(n/float16)",
        "x/float32:Cast{DstT=float32, SrcT=float16, Truncate=false}(x)",
        "w/float32:Cast{DstT=float32, SrcT=float16, Truncate=false}(w)",
        "m/float16:Cast{DstT=float16, SrcT=float32, Truncate=false}(m)",
        "m/float16/float32:Cast{DstT=float32, SrcT=float16, Truncate=false}(m/float16)",
        "n/float16:Cast{DstT=float16, SrcT=float32, Truncate=false}(n)",
        "return t:0=t",
    ]


def test_a_product_in_a_function_returns_the_dtype_of_the_signature():
    source = """x:Placeholder{dtype=float16} y:StatefulPartitionedCall{Tin=[float16], Tout=[float16], f=@f}(x)
    return y:0=y
    function f(a: float16) -> (b: float16)
      m:MatMul{T=float16}(a, a)
      return b=m
    end"""
    assert after("float32-kernels-on-cpu", source, on_cpu=True).splitlines()[3:] == [
        "function f(a: float16) -> (b: float16)",
        "  m:MatMul{T=float32}(a/float32, a/float32)",
        "  a/float32:Cast{DstT=float32, SrcT=float16, Truncate=false}(a)",
        "  m/product/0/float16:Cast{DstT=float16, SrcT=float32, Truncate=false}(m)",
        "  return b=m/product/0/float16",
        "end",
    ]


@pytest.mark.parametrize(("on_cpu", "nodes"), [
    (False, PRODUCT),
    (True, "t:Neg{T=float16}(x) return t:0=t"),
    (True, "m:MatMul{T=float16}(x, w) return m:0=m"),
    (True, "x2:Cast{SrcT=float16, DstT=float32}(x) m:MatMul{T=float32}(x2, x2) return m:0=m"),
])  # fmt: skip
def test_other_ops_and_what_is_fetched_stay(on_cpu, nodes):
    stays("float32-kernels-on-cpu", LOW + nodes, on_cpu=on_cpu)


# -- mask-open-uniques -------------------------------------------------------------------------------------------------

OPEN = "p:Placeholder{dtype=bool, shape=<4>} w:Where{T=bool}(p) x:Placeholder{dtype=int64, shape=<4>}\n"


def test_unique_of_an_open_size_takes_the_first_row_for_padding():
    out = after("mask-open-uniques", OPEN + "f:Reshape{T=int64, Tshape=int32}(w, s) s:Const{dtype=int32, "
                "value=int32<1>(-1)} u:Unique{T=int64, out_idx=int32}(f, ^x) return u:0=u:1").splitlines()  # fmt: skip
    assert out[-2] == "u:IdentityN{T=[int64, int32], _npu_shim_unique=true}(u/open/found, u/open/found:1, ^x)"
    assert "u/open/values:Identity{T=int64}(f)" in out
    assert [line for line in out if ":Unique{" in line] == [
        "u/open/%s:Unique{T=int64, out_idx=int32}(u/open/SelectV2_1)" % uniques.OPEN
    ]
    assert out[-1] == "return u:0=u:1"


def test_where_of_a_mask_of_open_size_takes_the_rows_that_are_there():
    out = after("mask-open-uniques", OPEN + "a:GatherV2{Taxis=int32, Tindices=int64, Tparams=int64}(x, w, z) "
                "z:Const{dtype=int32, value=int32<>(0)} v:Where{T=int64}(a, ^x) return v:0=v").splitlines()  # fmt: skip
    assert out[-2] == "v:Where{T=bool}(v/open/mask, ^x)"
    assert [line.partition("(")[2] for line in out if line.startswith("v/open/values:")] == ["a)"]


@pytest.mark.parametrize("node", ["u:Unique{T=int64, out_idx=int32}(x)", "u:Where{T=int64}(x)", "u:Neg{T=int64}(w)"])
def test_uniques_and_masks_of_known_sizes_stay(node):
    stays("mask-open-uniques", OPEN + node + " return u:0=u")


# -- unique-function-names ---------------------------------------------------------------------------------------------

CALL = "x:Placeholder{dtype=float32} y:PartitionedCall{Tin=[float32], Tout=[float32], f=@f}(x) return y:0=y\n"
BODY = "function f(a: float32) -> (b: float32) c:%s{T=float32}(a) return b=c end"


def test_functions_are_named_for_all_that_the_step_is():
    texts = [after("unique-function-names", CALL + BODY % op) for op in ("Neg", "Neg", "Exp")]
    names = [re.search(r"function (f_[0-9a-f]{16})\(", out).group(1) for out in texts]
    assert names[0] == names[1] != names[2]
    assert all("f=@%s}(x)" % name in out for name, out in zip(names, texts))


def test_a_step_without_functions_stays():
    stays("unique-function-names", "x:Placeholder{dtype=float32} y:Neg{T=float32}(x) return y:0=y")


# -- hoist-branch-reads ------------------------------------------------------------------------------------------------

COND = """p:Placeholder{dtype=bool} i:Identity{T=bool}(p) v:VarHandleOp{dtype=float32, shape=<2>} n:NoOp
s:Switch{T=resource}(v, i, ^n) x:Placeholder{dtype=float32} q:Switch{T=float32}(x, p) o:NoOp(^q) """


def test_a_read_in_a_branch_is_made_before_it():
    out = after("hoist-branch-reads", COND + "r:ReadVariableOp{dtype=float32}(s:1, ^n) return r:0=r").splitlines()
    assert out[-4:] == [
        "r/before:ReadVariableOp{dtype=float32}(v, ^n, ^i)",
        "r/before/side:Switch{T=float32}(r/before, i)",
        "r:Identity{T=float32}(r/before/side:1)",
        "return r:0=r",
    ]


def test_a_gather_in_two_branches_is_made_before_both():
    source = COND + """t:Switch{T=resource}(s:1, d) d:Placeholder{dtype=bool} k:Placeholder{dtype=int32}
    r:ResourceGather{Tindices=int32, dtype=float32}(t, k) return r:0=r"""
    out = after("hoist-branch-reads", source).splitlines()
    assert "r/before:Identity{T=float32}(r/before/before/side:1)" in out
    assert "r/before/before:ReadVariableOp{dtype=float32}(v, ^d, ^n, ^i)" in out
    assert out[-2] == (
        "r:GatherV2{Taxis=int32, Tindices=int32, Tparams=float32, batch_dims=0}(r/before/side, k, r/before/axis)"
    )


@pytest.mark.parametrize("nodes", [
    "a:AssignVariableOp{dtype=float32}(s:1, q:1) r:ReadVariableOp{dtype=float32}(s:1, ^a) return r:0=r",
    "r:ReadVariableOp{dtype=float32}(v, ^n) return r:0=r",
    """e:Enter{T=resource, frame_name='l'}(v) z:LoopCond(f) f:Enter{T=bool, frame_name='l'}(p)
    w:Switch{T=resource}(e, z) r:ReadVariableOp{dtype=float32}(w:1) return r:0=r""",
])  # fmt: skip
def test_reads_behind_a_write_outside_of_branches_and_in_loops_stay(nodes):
    stays("hoist-branch-reads", COND + nodes)


# -- functionalize: Stacks ---------------------------------------------------------------------------------------------

SIDE = """n:Const{dtype=int32, value=int32<>(3)} s:StackV2{elem_type=float32}(n) x:Placeholder{dtype=float32, shape=<2>}
p:Placeholder{dtype=bool} h:Switch{T=resource}(s, p) v:Switch{T=float32}(x, p)
push:StackPushV2{T=float32}(h:1, v:1, ^n) pop:StackPopV2{elem_type=float32}(h:1, ^push) w:NoOp(^pop)
y:Merge{T=float32, N=2}(v, pop) return y:0=y w=^w
"""


def test_a_push_on_one_side_and_its_pop_leave_the_tf_cond():
    out = after(lambda module, context: branch_stacks.on_both_sides(module), SIDE).splitlines()
    assert out[6:9] == [
        "push:StackPushV2{T=float32}(s, push/side0/merge, ^n)",
        "pop:Identity{T=float32}(pop/side0:1, ^push)",
        "w:NoOp(^pop/both)",
    ]
    assert out[-8:-1] == [
        "push/dims:Const{dtype=int32, value=int32<1>(2)}(^s)",
        "push/zero:Const{dtype=float32, value=float32<>(0.0)}(^s)",
        "push/zeros:Fill{T=float32, index_type=int32}(push/dims, push/zero)",
        "push/side0/switch:Switch{T=float32}(push/zeros, p)",
        "push/side0/merge:Merge{N=2, T=float32}(push/side0/switch, v:1)",
        "pop/both:StackPopV2{elem_type=float32}(s)",
        "pop/side0:Switch{T=float32}(pop/both, p)",
    ]


def test_pushes_outside_of_tf_cond_stay():
    stays(lambda module, context: branch_stacks.on_both_sides(module), SIDE.replace("(h:1, v:1", "(s, x"))


LOOP = """n:Const{dtype=int32, value=int32<>(-1)} s:StackV2{elem_type=float32}(n)
zero:Const{dtype=int32, value=int32<>(0)} five:Const{dtype=int32, value=int32<>(5)} x:Placeholder{dtype=float32}
i:Enter{T=int32, frame_name='l'}(zero)
h:Enter{T=resource, frame_name='l'}(s) limit:Enter{T=int32, frame_name='l'}(five) a:Enter{T=float32, frame_name='l'}(x)
m:Merge{N=2, T=int32}(i, next) less:Less{T=int32}(m, limit) c:LoopCond(less) t:Switch{T=int32}(m, c)
two:Const{dtype=int32, value=int32<>(2)}(^m) add:AddV2{T=int32}(t:1, two) push:StackPushV2{T=float32}(h, a)
next:NextIteration{T=int32}(add, ^push) out:Exit{T=int32}(t) return y:0=out
"""


def _sized(module, context):
    functionalization.bound_stacks(module.graph)


def test_a_stack_is_as_large_as_its_loop_is_long():
    out = after(_sized, LOOP).splitlines()
    assert out[1] == "s:StackV2{elem_type=float32}(s/size)"
    assert out[-2] == "s/size:Const{dtype=int32, value=int32<>(3)}"  # of 0, 2 and 4


@pytest.mark.parametrize("size", ["Const{dtype=int32, value=int32<>(7)}", "Placeholder{dtype=int32}"])
def test_a_stack_that_has_a_size_stays(size):
    stays(_sized, LOOP.replace("Const{dtype=int32, value=int32<>(-1)}", size))
