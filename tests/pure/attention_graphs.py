"""Attention as TensorFlow writes it, as text, and the shapes of such graphs."""

import module_text
import numpy as np

from npu_shim.rewriter.analysis import order
from npu_shim.xla.passes.attention.matching import pattern
from npu_shim.xla.passes.attention.matching.contents import Contents

PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
# BERT's: scale, mask, softmax, dropout; its gradient in bfloat16 products with float32 between them
FORWARD = """
q:Placeholder{dtype=bfloat16, shape=<2,4,16,8>} k:Placeholder{dtype=bfloat16, shape=<2,4,32,8>}
v:Placeholder{dtype=bfloat16, shape=<2,4,32,24>} mask:Placeholder{dtype=bfloat16, shape=<2,1,1,32>}
key:Placeholder{dtype=uint64, shape=<1>} counter:Placeholder{dtype=uint64, shape=<2>}
alg:Const{dtype=int32, value=int32<>(1)} shape:Const{dtype=int32, value=int32<4>(2, 4, 16, 32)}
scale:Const{dtype=bfloat16, value=bfloat16<>(0.125)} rate:Const{dtype=float32, value=float32<>(0.25)}
more:Const{dtype=float32, value=float32<>(1.3333334)} zero:Const{dtype=float32, value=float32<>(0)}
s0:BatchMatMulV2{T=bfloat16, adj_y=true}(q, k)
s1:Mul{T=bfloat16}(s0, scale)
s2:AddV2{T=bfloat16}(s1, mask)
s3:Cast{SrcT=bfloat16, DstT=float32}(s2)
p:Softmax{T=float32}(s3)
u:StatelessRandomUniformV2{dtype=float32, Tshape=int32}(shape, key, counter, alg)
keep:GreaterEqual{T=float32}(u, rate)
p1:Mul{T=float32}(p, more)
p2:SelectV2{T=float32}(keep, p1, zero)
p3:Cast{SrcT=float32, DstT=bfloat16}(p2)
o:BatchMatMulV2{T=bfloat16}(p3, v)
y:Tanh{T=bfloat16}(o)
"""
BACKWARD = """
last:Const{dtype=int32, value=int32<>(-1)}
g:TanhGrad{T=bfloat16}(y, o)
g0:BatchMatMulV2{T=bfloat16, adj_y=true}(g, v)
dv:BatchMatMulV2{T=bfloat16, adj_x=true}(p3, g)
g1:Cast{SrcT=bfloat16, DstT=float32}(g0)
g2:SelectV2{T=float32}(keep, g1, zero)
g3:Mul{T=float32}(g2, more)
g4:Mul{T=float32}(g3, p)
g5:Sum{T=float32, Tidx=int32, keep_dims=true}(g4, last)
g6:Sub{T=float32}(g3, g5)
g7:Mul{T=float32}(g6, p)
g8:Cast{SrcT=float32, DstT=bfloat16}(g7)
g9:Mul{T=bfloat16}(g8, scale)
dq:BatchMatMulV2{T=bfloat16}(g9, k)
dk:BatchMatMulV2{T=bfloat16, adj_x=true}(g9, q)
"""
GRADIENTS = "rq:Neg{T=bfloat16}(dq) rk:Neg{T=bfloat16}(dk) rv:Neg{T=bfloat16}(dv) return rq:0=rq, rk:0=rk, rv:0=rv\n"
TRAINING = FORWARD + BACKWARD + GRADIENTS
INFERENCE = FORWARD + "return y:0=y\n"


class Shapes:
    """The shapes of a graph of such ops, as it was at first."""

    def __init__(self, graph):
        self.contents, self._known = Contents(self.of), {}
        for node in order.topological(graph):
            self._known[node] = RULES.get(node.op, _broadcast)(self, node)

    def of(self, value):
        """The sizes of a value."""
        return self._known[value.node]


def _broadcast(shapes, node):
    return np.broadcast(*(np.broadcast_to(0, shapes.of(value)) for value in node.inputs)).shape


def _product(shapes, node):
    x, y = map(shapes.of, node.inputs)
    rows, columns = x[-1 if node.attrs.get("adj_x") else -2], y[-2 if node.attrs.get("adj_y") else -1]
    return (*np.broadcast(*(np.broadcast_to(0, shape[:-2]) for shape in (x, y))).shape, rows, columns)


def _reduced(shapes, node):
    shape, axes = shapes.of(node.inputs[0]), [axis % 4 for axis in shapes.contents.integers(node.inputs[1])]
    kept = node.attrs.get("keep_dims")
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape) if kept or axis not in axes)


RULES = {
    "Placeholder": lambda shapes, node: node.attrs["shape"].dims,
    "Const": lambda shapes, node: node.attrs["value"].dims,
    **dict.fromkeys(["RandomUniform", "StatelessRandomUniformV2"],
                    lambda shapes, node: shapes.contents.integers(node.inputs[0])),
    "Reshape": lambda shapes, node: shapes.contents.integers(node.inputs[1]),
    "Transpose": lambda shapes, node: tuple(
        shapes.of(node.inputs[0])[axis] for axis in shapes.contents.integers(node.inputs[1])
    ),
    "ExpandDims": lambda shapes, node: tuple(np.expand_dims(np.empty(shapes.of(node.inputs[0])), 1).shape),
    **dict.fromkeys(["Shape", "BroadcastGradientArgs"], lambda shapes, node: (4,)),
    **dict.fromkeys(["Sum", "Max"], _reduced),
    **dict.fromkeys(PRODUCTS, _product),
}  # fmt: skip


def planned(source):
    """(module, Plan) of a graph's text."""
    module = module_text.parse(source, lambda op: None)
    return module, pattern.plan(module.graph, Shapes(module.graph).contents)


def changed(source, *pairs):
    """The text with each (old, new) replaced, which must be there."""
    for old, new in pairs:
        assert old in source, old
        source = source.replace(old, new)
    return source
