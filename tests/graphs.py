"""A text notation for small graphs, and their views, so that a test shows graph and result side by side.

    parse("x:Placeholder w:Const; a:MatMul(x,w); r:Relu(a)")

One node a statement, `name:Op(inputs)` or just `name:Op`; `@d` behind the op sets its dtype (h float16, b bfloat16,
f float32, i int32, r resource, v variant). `[keep]` is a node that a scope keeps, `[to_h]` one for which a scope asks
for float16, `[rounded]` one that an earlier rewrite had stand for float16. Inputs are `name` or `name:port`, control
inputs `^name`.
"""

import re

from npu_shim.rewriter.graph.graph_view import GraphView, Layout, Node, Port, Slot
from npu_shim.rewriter.graph.kernel_table import Kernel, KernelTable
from npu_shim.rewriter.tables import op_table
from npu_shim.rewriter.tables.dtypes import BFLOAT16, FLOAT16, FLOAT32, NUMBERS

I32, BOOL, RESOURCE, VARIANT = (NUMBERS[name] for name in ("int32", "bool", "resource", "variant"))
F, H, B = FLOAT32, FLOAT16, BFLOAT16
DTYPES = {"f": F, "h": H, "b": B, "i": I32, "r": RESOURCE, "v": VARIANT}
FLOAT_LIKE = frozenset({F, H, B, NUMBERS["float64"], I32})


def _layout(op, inputs, outputs, slots=("T",), admits=FLOAT_LIKE, refs_in=(), refs_out=()):
    return Layout(
        op, tuple(Slot(s) for s in slots), tuple(inputs), tuple(outputs), tuple(admits for _ in slots),
        frozenset(refs_in), frozenset(refs_out)
    )


FIXED = {
    "Cast": _layout("Cast", [0], [1], ("SrcT", "DstT")),
    "FusedBatchNormV3": _layout("FusedBatchNormV3", [0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], ("T", "U")),
    "Sum": _layout("Sum", [0, ~I32], [0]),
    "Split": _layout("Split", [~I32, 0], [0, 0]),
    "Gather": _layout("Gather", [0, ~I32], [0]),
    "VariableV2": _layout("VariableV2", [], [0], refs_out=(0,)),
    "RefEnter": _layout("RefEnter", [0], [0], refs_in=(0,), refs_out=(0,)),
    "ApplyTwo": _layout("ApplyTwo", [0, 0], [0], refs_in=(0, 1), refs_out=(0,)),
    **{op: _layout(op, [0, 0], [0], refs_in=(0,), refs_out=(0,)) for op in ("Assign", "AssignAdd", "AssignSub")},
    "IsVariableInitialized": _layout("IsVariableInitialized", [0], [~10], refs_in=(0,)),
    "Switch": _layout("Switch", [0, ~BOOL], [0, 0]),
    "TensorArrayV3": _layout("TensorArrayV3", [~I32], [~RESOURCE, ~F]),
    "TensorArrayGradV3": _layout("TensorArrayGradV3", [~RESOURCE, ~F], [~RESOURCE, ~F], ()),
    "TensorArrayWriteV3": _layout("TensorArrayWriteV3", [~RESOURCE, ~I32, 0, ~F], [~F]),
    "TensorArrayReadV3": _layout("TensorArrayReadV3", [~RESOURCE, ~I32, ~F], [0]),
    "TensorArraySizeV3": _layout("TensorArraySizeV3", [~RESOURCE, ~F], [~I32], ()),
    "StackV2": _layout("StackV2", [~I32], [~RESOURCE]),
    "StackPushV2": _layout("StackPushV2", [~RESOURCE, 0], [0]),
    "StackPopV2": _layout("StackPopV2", [~RESOURCE], [0]),
    "TensorListReserve": _layout("TensorListReserve", [~I32, ~I32], [~VARIANT]),
    "TensorListSetItem": _layout("TensorListSetItem", [~VARIANT, ~I32, 0], [~VARIANT]),
    "TensorListGetItem": _layout("TensorListGetItem", [~VARIANT, ~I32, ~I32], [0]),
    "TensorListPopBack": _layout("TensorListPopBack", [~VARIANT, ~I32], [~VARIANT, 0]),
    "TensorListLength": _layout("TensorListLength", [~VARIANT], [~I32], ()),
    "Shape": _layout("Shape", [0], [~I32]),
    "Betainc": _layout("Betainc", [0], [0], admits=frozenset({F, NUMBERS["float64"]})),
    "Lgamma": _layout("Lgamma", [0], [0], admits=frozenset({F, H})),
    "TensorArrayScatterV3": _layout("TensorArrayScatterV3", [~RESOURCE, ~I32, 0, ~F], [~F]),
    "TensorArraySplitV3": _layout("TensorArraySplitV3", [~RESOURCE, 0, ~NUMBERS["int64"], ~F], [~F]),
    "TensorListFromTensor": _layout("TensorListFromTensor", [0, ~I32], [~VARIANT]),
    "TensorListScatter": _layout("TensorListScatter", [0, ~I32, ~I32], [~VARIANT]),
    "TensorListScatterV2": _layout("TensorListScatterV2", [0, ~I32, ~I32, ~I32], [~VARIANT]),
    "TensorListSplit": _layout("TensorListSplit", [0, ~I32, ~NUMBERS["int64"]], [~VARIANT]),
    "TensorListPushBack": _layout("TensorListPushBack", [~VARIANT, 0], [~VARIANT]),
    "TensorListPushBackBatch": _layout("TensorListPushBackBatch", [~VARIANT, 0], [~VARIANT]),
    "TensorListScatterIntoExistingList": _layout(
        "TensorListScatterIntoExistingList", [~VARIANT, 0, ~I32], [~VARIANT]
    ),
    "VarHandleOp": _layout("VarHandleOp", [], [~RESOURCE]),
    "AssignVariableOp": _layout("AssignVariableOp", [~RESOURCE, 0], []),
    "ResourceGather": _layout("ResourceGather", [~RESOURCE, ~I32], [0]),
}


def layout(op, count):
    """The layout of a test op; `count` is its number of data inputs."""
    if op in FIXED:
        return FIXED[op]
    if op == "IdentityN":
        slots = tuple(Slot("T", k) for k in range(count))
        return Layout(op, slots, tuple(range(count)), tuple(range(count)), tuple(FLOAT_LIKE for _ in slots))
    if op == "Merge":
        return _layout(op, [0] * count, [0, ~I32])
    if op == "CTCLossV1":  # outputs and inputs of a dtype fixed by the op definition
        return _layout(op, [~F] * count, [~F], ())
    return _layout(op, [0] * count, [0])


WHITE, BLACK = ("MatMul", "Conv2D"), ("Exp", "Softmax", "Pow")
GRAY = ("Add", "Mul", "Relu", "FusedBatchNormV3", "Tanh", "Betainc", "Lgamma")
MOVES = ("Reshape", "Identity", "IdentityN", "Split", "Gather")
SOURCES = ("Const", "Placeholder", "ReadVariableOp", "VariableV2")


def table(**changes):
    """A small op table; keyword arguments change the list of an op."""
    rows = [op_table.Entry(op, "white", cube=True, tensorflow=(op,), dtypes=frozenset({"float16"})) for op in WHITE]
    rows += [op_table.Entry(op, "black", tensorflow=(op,)) for op in BLACK]
    rows += [op_table.Entry(op, keep=frozenset({"U"}), tensorflow=(op,)) for op in GRAY]
    rows += [op_table.Entry(op, role="moves", tensorflow=(op,)) for op in MOVES]
    rows += [op_table.Entry(op, role="source", tensorflow=(op,)) for op in SOURCES]
    rows.append(op_table.Entry("Cast", role="cast", tensorflow=("Cast",)))
    rows.append(op_table.Entry("AssignAdd", "black", role="pinned", tensorflow=("AssignAdd",)))
    built = op_table.OpTable("test", {row.name: row for row in rows}, {row.name: (row.name,) for row in rows})
    return built.with_lists(changes)


def kernels(*missing):
    """Kernels for every test op in every dtype on CPU and GPU; the ops in `missing` have float32 only."""
    ops = WHITE + BLACK + GRAY + MOVES + SOURCES + ("Cast", "AssignAdd", "CTCLossV1", "Unlisted")
    only = ((Slot("T").attr, frozenset({F})),)
    return KernelTable({op: tuple(Kernel(d, only if op in missing else ()) for d in ("CPU", "GPU")) for op in ops})


STATEMENT = re.compile(
    r"(?P<name>[\w/.[\]-]+):(?P<op>\w+)(@(?P<dtypes>[fhbirv]+))?(\[(?P<flag>\w+)\])?(\((?P<inputs>[^)]*)\))?"
)


def parse(text, feeds=(), preserved=()):
    """The GraphView of a graph in the notation above."""
    rows = [match.groupdict() for match in STATEMENT.finditer(text)]
    position = {row["name"]: number for number, row in enumerate(rows)}
    nodes = []
    for row in rows:
        names = [name.strip() for name in (row["inputs"] or "").split(",") if name.strip()]
        data = [name for name in names if name[0] != "^"]
        shape = layout(row["op"], len(data))
        dtypes = row["dtypes"] or "f" * len(shape.slots)
        dtypes = dtypes * len(shape.slots) if len(dtypes) == 1 else dtypes
        nodes.append(
            Node(
                row["name"], row["op"], "", shape, tuple(DTYPES[d] for d in dtypes),
                tuple(_port(name, position) for name in data),
                tuple(position[name[1:]] for name in names if name[0] == "^"),
                row["flag"] == "keep", {"to_h": H, "to_f": F}.get(row["flag"], 0), H if row["flag"] == "rounded" else 0,
            )
        )  # fmt: skip
    fed = frozenset(_port(name, position) for name in feeds)
    return GraphView(tuple(nodes), fed, frozenset(position[name] for name in preserved))


def _port(text, position):
    name, _, port = text.partition(":")
    return Port(position[name], int(port or 0))


def shown(plan):
    """What a plan does, in one line: "a:h r:h" for every changed slot, then its casts, tensor>dtype(consumers)."""
    letters = {F: "f", H: "h", B: "b"}
    slots = {node.name: len(node.dtypes) for node in plan.view.nodes}
    changed = [
        "%s:%s" % (d.node if slots[d.node] == 1 else _slot_name(d), letters[d.becomes])
        for d in plan.decisions()
        if d.becomes != d.was
    ]
    names = [node.name for node in plan.view.nodes]
    casts = []
    for cast in plan.casts:
        consumers = ",".join(names[position] for position, _ in cast.consumers)
        casts.append("%s>%s(%s)" % (cast.tensor, letters[cast.dtype], consumers))
    return " ".join(changed) + " | " + " ".join(casts)


def _slot_name(decision):
    index = "" if decision.slot.index is None else decision.slot.index
    return "%s.%s%s" % (decision.node, decision.slot.attr, index)


def after(rewrite, graph_def, *args, **kwargs):
    """The GraphDef that a pass makes, which changes a module in place; the same object where it changes nothing."""
    from npu_shim.rewriter.ir import graphdef
    from npu_shim.rewriter.ir.module import Module

    module = Module()
    graphdef.replace(module, graph_def)
    rewrite(module, *args, **kwargs)
    return graphdef.write(module)
