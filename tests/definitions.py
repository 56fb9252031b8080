"""Definitions of ops, written as functions:  Mul(x: T, y: T) -> (z: T)

A type is a dtype's name, an attribute of kind "type" (T: dtypes are float32 and float16 unless it is fixed by the op),
`N*T` for N tensors, `*T` for one of each dtype of a list; & makes it a reference. `!` behind the name: stateful.
"""

import re

from npu_shim.rewriter.ir.definitions import Argument, Definition
from npu_shim.rewriter.tables.dtypes import NUMBERS

LINE = re.compile(r"(\w+)(!?)\((.*?)\) -> \((.*?)\)")
TEXT = """
Placeholder() -> (output: dtype)
Const() -> (output: dtype)
Identity(input: T) -> (output: T)
Mul(x: T, y: T) -> (z: T)
Add(x: T, y: T) -> (z: T)
MatMul(a: T, b: T) -> (product: T)
Less(x: T, y: T) -> (z: bool)
Cast(x: SrcT) -> (y: DstT)
AddN(inputs: N*T) -> (sum: T)
IdentityN(input: *T) -> (output: *T)
Split(split_dim: int32, value: T) -> (output: num_split*T)
TopK(input: T) -> (values: T, indices: int32)
NoOp() -> ()
PartitionedCall(args: *Tin) -> (output: *Tout)
VariableV2!() -> (ref: &dtype)
Assign(ref: &T, value: T) -> (output_ref: &T)
VarHandleOp!() -> (resource: resource)
ReadVariableOp!(resource: resource) -> (value: dtype)
AssignVariableOp!(resource: resource, value: dtype) -> ()
Enter(data: T) -> (output: T)
Exit(data: T) -> (output: T)
Merge(inputs: N*T) -> (output: T, value_index: int32)
Switch(data: T, pred: bool) -> (output_false: T, output_true: T)
NextIteration(data: T) -> (output: T)
LoopCond(input: bool) -> (output: bool)
"""


def _argument(text):
    name, _, kind = text.partition(": ")
    number, star, kind = kind.lstrip("&").rpartition("*")
    is_list = bool(star) and not number
    dtype = NUMBERS.get(kind, 0)
    fixed = {} if dtype else {"list_attr": kind} if is_list else {"type_attr": kind}
    return Argument(name, dtype, number_attr=number, is_ref="&" in text, **fixed)


def _definition(name, stateful, inputs, outputs):
    sides = [tuple(map(_argument, filter(None, side.split(", ")))) for side in (inputs, outputs)]
    attributes = {}
    for argument in (*sides[0], *sides[1]):
        kinds = {argument.type_attr: "type", argument.number_attr: "int", argument.list_attr: "list(type)"}
        attributes.update((attr, (kind, None, ())) for attr, kind in kinds.items() if attr)
    return Definition(name, *sides, attributes=attributes, is_stateful=bool(stateful))


DEFINITIONS = {row[0]: _definition(*row) for row in LINE.findall(TEXT)}
known = DEFINITIONS.get
