"""Passes of compiled steps that rewrite values, branches and state: text in, text out."""

import pytest
import tensorflow.compat.v1 as tf
from passes_as_text import after, stays

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
