"""What decides whether a loop goes on: text in, names of nodes out."""

import json
import pathlib

import pytest

import graphs
from npu_shim.rewriter.graph.ties import find_ties
from npu_shim.rewriter.planner.conditions import HANDLES, MEASURES, VARIABLES, deciding

WHITE = graphs.WHITE
LOOP = " e:Enter(x) m:Merge(e,n) k:Less@f(m,l) s:Switch(m,k) %s n:NextIteration(b) o:Exit(s:0) "
DECIDING = {
    # the loop variable and what makes its next value; its Enter and NextIteration have the dtype of the Merge
    "x:Const l:Const" + LOOP % "b:Add(s:1,l)": "b k m s",
    "x:Const l:Const" + LOOP % "i:Identity(s:1) r:Relu(i) b:Add(r,l)": "b i k m r s",
    # whatever op that is
    "x:Const l:Const" + LOOP % "u:Unlisted(s:1) b:Softmax(u)": "b k m s u",
    # not through a product, and what goes into it
    "x:Const l:Const" + LOOP % "r:Relu(s:1) b:MatMul(r,l)": "k m",
    # the limit: computed before the loop
    "x:Const y:Const r:Relu(y) q:Reshape(r,y) l:Enter(q)" + LOOP % "b:Add(s:1,l)": "b k l m q r s",
    # a shape does not read values
    "x:Const y:Const r:Relu(y) l:Shape@f(r)" + LOOP % "b:Add(s:1,l)": "b k m s",
    "x:Const y:Const r:Relu(y) l:ZerosLike(r)" + LOOP % "b:Add(s:1,l)": "b k m s",
    # but where what it reads decides it
    "x:Const y:Const r:Relu(y) w:Where@f(r) g:Reshape(y,w) l:Shape@f(w)" + LOOP % "b:Add(s:1,l)": "b k m r s",
    "x:Const y:Const r:Relu(y) w:Where@f(r) u:Tanh(w) l:Shape@f(u)" + LOOP % "b:Add(s:1,l)": "b k m r s",
    "x:Const y:Const r:Relu(y) t:Tanh(y) w:Fill(r,t) l:Shape@f(w)" + LOOP % "b:Add(s:1,l)": "b k m r s",
    # a constant of a branch is chosen by its predicate
    "x:Const y:Const r:Relu(y) p:Switch(r,r) i:Identity(p) c:Const(^i) l:Merge(c,y)" + LOOP % "b:Add(s:1,l)":
    "b c i k l m p r s",
    # what does not go into the condition: a second loop variable
    "x:Const l:Const" + LOOP % "b:Add(s:1,l)" +
    "e2:Enter(x) m2:Merge(e2,n2) s2:Switch(m2,k) b2:Add(s2:1,l) n2:NextIteration(b2)": "b k m s",
    # nor what a tf.cond chooses by
    "x:Const r:Relu(x) k:Less@f(r,x) s:Switch(x,k) y:Relu(s:1) m:Merge(y,s)": "",
    # a variable: what is assigned to it, by whatever way the handle goes
    "x:Const l:Const h:VarHandleOp@r g:Enter@r(h) y:Relu(x) a:AssignVariableOp(g,y) v:ReadVariableOp(h)" +
    LOOP % "b:Add(s:1,v)": "b h k m s v y",
    # whoever reads its value puts nothing there
    "x:Const l:Const h:VarHandleOp@r y:Relu(x) v:ReadVariableOp(h) a:Unlisted(v,y)" + LOOP % "b:Add(s:1,v)":
    "b k m s v",
    "x:Const l:Const h:VariableV2 y:Relu(x) a:AssignAdd(h,y) i:Identity(h)" + LOOP % "b:Add(s:1,i)": "b h i k m s y",
    "x:Const l:Const h:VariableV2 y:Relu(x) w:MatMul(h,y) i:Identity(h)" + LOOP % "b:Add(s:1,i)": "b i k m s",
    # a container: what is written
    "x:Const l:Const z:Const@i t:TensorArrayV3(z) y:Relu(x) u:TensorArrayWriteV3(t,z,y,t:1)"
    " r:TensorArrayReadV3(t,z,u)" + LOOP % "b:Add(s:1,r)": "b k m r s y",
}  # fmt: skip


@pytest.mark.parametrize("text", DECIDING)
def test_what_decides(text):
    view = graphs.parse(text)
    names = sorted(view.nodes[position].name for position in deciding(view, find_ties(view), WHITE.__contains__))
    assert " ".join(names) == DECIDING[text]


def test_the_ops_are_ops():
    configs = pathlib.Path(__file__).resolve().parent.parent.parent / "configs"
    tables = [json.loads(file.read_text()) for file in configs.glob("ascend910/*.json")]
    rows = [(name, row) for table in tables for name, row in table.items() if isinstance(row, dict)]
    known = {op for name, row in rows for op in row.get("tensorflow", [name])}
    known.update(json.loads(configs.joinpath("gpu_kernels/2.15.json").read_text())["kernels"])
    assert (MEASURES | VARIABLES | HANDLES) - known == set()
