"""Whole plans as text, for tests/golden/plans.txt: random graphs with loops, containers and variables.

A case is a line of settings, `key=value`, a graph in the notation of graphs.py, and the plan. The cases are in the file
as they are, however they were drawn. When a rule has changed, the difference of the file is what the change does:

    python tests/planned.py           plans the cases of the file anew and writes it
    python tests/planned.py 1000      draws a thousand cases, and writes those that show what none before them does
"""

import pathlib
import random
import re
import sys
import textwrap
from dataclasses import replace

import graphs
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.facts import NO_FACTS, Facts
from npu_shim.rewriter.graph.graph_view import Port
from npu_shim.rewriter.graph.kernel_table import Kernel, KernelTable
from npu_shim.rewriter.planner.decisions import Reason
from npu_shim.rewriter.planner.plan import plan
from npu_shim.rewriter.tables.op_table import Entry
from npu_shim.rewriter.tables.policy import PRECISION_MODE

ROLES = {
    "moves": ["Enter", "Exit", "Merge", "NextIteration", "Switch", "Shape"],
    "container": [
        "TensorArrayV3", "TensorArrayWriteV3", "TensorArrayReadV3", "StackV2", "StackPushV2", "StackPopV2",
        "TensorListReserve", "TensorListSetItem", "TensorListGetItem", "TensorListPopBack",
    ],
    "computes": ["ZerosLike"],
    "source": ["Random"],
}  # fmt: skip
SOURCES = ("x:Placeholder", "w:ReadVariableOp", "c:Const", "h:Placeholder@h", "i:Placeholder@i", "z:Const@i")
OPS = (*["MatMul"] * 3, "Add", "Mul", "Relu", "Tanh", "Exp", "Reshape", "Identity", "Unlisted", "ZerosLike")
LETTERS = {graphs.F: "f", graphs.H: "h", graphs.B: "b"}
GOLDEN = pathlib.Path(__file__).resolve().parent / "golden" / "plans.txt"


def _table():
    rows = {op: Entry(op, role=role, tensorflow=(op,)) for role, ops in ROLES.items() for op in ops}
    rows["Sum"] = Entry("Sum", "black", tensorflow=("Sum",))
    table = graphs.table()
    return replace(table, entries={**table.entries, **rows})


def _kernels(missing, slow):
    table = graphs.kernels(*missing)
    more = [op for ops in ROLES.values() for op in ops] + ["Sum"]
    only = (("T", frozenset({graphs.F, graphs.I32})),)
    by_op = {**table.by_op, **{op: (Kernel("CPU", only if op in missing else ()),) for op in more}}
    return KernelTable(by_op, slow=dict.fromkeys(slow, frozenset({graphs.H})))


class Told(Facts):
    """Of every Sum that it sums nothing."""

    def sums_nothing(self, position):
        """As Facts has it."""
        return True


def planned(settings, text):
    """The plan of a case as lines."""
    given = dict(word.split("=") for word in settings.split())
    names = {key: value.split(",") if value else [] for key, value in given.items()}
    view = graphs.parse(text, names["feeds"], names["fetches"])
    kernels = _kernels(names["missing"], names["slow"])
    facts = Told() if given["sums"] else NO_FACTS
    try:
        decided = plan(view, _table(), PRECISION_MODE[given["mode"]], kernels, facts=facts)
    except PlanError as error:
        return _wrapped("error", [str(error)])
    return [
        *_wrapped("slots", (_decision(d) for d in decided.decisions() if d.reason is not Reason.SOURCE)),
        *_wrapped("casts", (_cast(view, cast) for cast in decided.casts)),
        *_wrapped("outside", (_boundary(view, boundary) for boundary in decided.edits.boundaries)),
        *_wrapped("reads", sorted(
            "%s/%d<%s" % (view.nodes[position].name, number, _port(view, port))
            for (position, number), port in decided.edits.reconnections.items()
        )),
    ]  # fmt: skip


def _wrapped(word, parts):
    text = "  ".join(parts)
    return textwrap.wrap(word + ": " + text, 118, subsequent_indent="    ", break_on_hyphens=False) if text else []


def _decision(d):
    cause = "" if d.because is None else "<" + d.because[0] + _slot(d.because[1])
    change = LETTERS[d.was] if d.was == d.becomes else LETTERS[d.was] + LETTERS[d.becomes]
    way = "" if d.way.name == "KERNEL" else "/" + d.way.name.lower()
    return "%s%s:%s,%s%s%s" % (d.node, _slot(d.slot), change, d.reason.name.lower(), cause, way)


def _slot(slot):
    name = "" if slot.attr == "T" else "." + slot.attr
    return name if slot.index is None else "%s.%d" % (name, slot.index)


def _port(view, port):
    return "%s:%d" % (view.nodes[port.node].name, port.port)


def _cast(view, cast):
    source = _port(view, cast.source) if isinstance(cast.source, Port) else cast.source
    readers = ",".join("%s/%d" % (view.nodes[position].name, number) for position, number in cast.consumers)
    before = "".join("^" + view.nodes[position].name for position in cast.before)
    folded = "=" if cast.folded else "<"
    change = LETTERS.get(cast.source_dtype, "i") + LETTERS[cast.dtype]
    return "%s:%s%s%s%s>%s" % (cast.name, change, folded, source, before, readers)


def _boundary(view, boundary):
    return "%s>%s(%s)" % (view.nodes[boundary.node].name, boundary.renamed, ",".join(map(str, boundary.casts)))


class Drawing:
    """A random graph that grows by pieces."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.statements = list(SOURCES)
        self.floats, self.lows, self.count = ["x", "w", "c"], ["h"], 0
        self.writers = []

    def new(self, text, *inputs):
        """Adds a node of "Op" or "Op@f"; returns its name."""
        name = "n%d" % self.count
        self.count += 1
        waits = ["^" + self.rng.choice(self.writers)] if self.writers and self.rng.random() < 0.2 else []
        read = ",".join([*inputs, *waits])
        self.statements.append("%s:%s%s" % (name, text, "(%s)" % read if read else ""))
        return name

    def float(self):
        """A float32 tensor, rather a late one."""
        late = self.floats[-self.rng.randint(1, min(len(self.floats), 3)) :][0]
        return late if self.rng.random() < 0.7 else self.rng.choice(self.floats)

    def compute(self):
        """An op of one or two inputs."""
        op = self.rng.choice(OPS)
        flag = self.rng.choice(["[keep]", "@f[to_h]", "@f[rounded]"]) if self.rng.random() < 0.07 else ""
        flag = "@f" + flag if flag == "[keep]" else flag
        count = 2 if op in ("MatMul", "Add", "Mul") else 1
        self.floats.append(self.new(op + flag, *(self.float() for _ in range(count))))

    def special(self):
        """An op of its own kind."""
        low, x, y = self.rng.choice(self.lows), self.float(), self.float()
        op, *inputs = self.rng.choice([
            ("Cast@hf", low), ("Cast@fh", x), ("Cast@if", "i"), ("MatMul@h", "h", low), ("Add@h", "h", low),
            ("FusedBatchNormV3", x, "c", "c", "c", "c"), ("Split", "z", x), ("IdentityN@ff", x, y), ("Gather", x, "i"),
            ("Sum", x, "z"), ("CTCLossV1", x), ("Shape", x),
        ])  # fmt: skip
        name = self.new(op, *inputs)
        if op.endswith("h"):
            self.lows.append(name)
        elif op != "Shape":
            self.floats += [name, name + ":1"] if op in ("Split", "IdentityN@ff") else [name]

    def loop(self):
        """A loop variable, whose body may hand it on, add to it or compute."""
        body = self.count
        enter, merge, switch, following = ("n%d" % (body + k) for k in range(4))
        self.count += 4
        start = self.float()
        self.statements += [
            "%s:Enter(%s)" % (enter, start), "%s:Merge(%s,%s)" % (merge, enter, following),
            "%s:Switch(%s,z)" % (switch, merge),
        ]  # fmt: skip
        value = self.rng.choice([switch + ":1", merge])
        outer, self.floats = self.floats, [value, self.rng.choice(self.floats)]
        kind = self.rng.choice(["computes", "hands on", "adds"])
        if kind == "hands on":
            handed = self.new("Identity", value)
            self.floats.append(handed)
        for _ in range(self.rng.randint(0, 2)):
            self.compute()
        last = self.new("Add", value, self.float()) if kind == "adds" else self.float()
        last = handed if kind == "hands on" else last
        self.statements.append("%s:NextIteration(%s)" % (following, last))
        self.floats = [*outer, self.new("Exit", switch), *self.floats[2:]]

    def container(self):
        """Something written to an array, a stack or a list, and read."""
        kind, new = self.rng.choice(["array", "stack", "list", "popped"]), self.new
        if kind == "array":
            array = new("TensorArrayV3", "z")
            flow = new("TensorArrayWriteV3", array, self.rng.choice("iz"), self.float(), array + ":1")
            self.floats.append(new("TensorArrayReadV3", array, "z", flow))
            if self.rng.random() < 0.4:
                gradient = new("TensorArrayGradV3", array, flow)
                index = new("StackPopV2@i", new("StackV2@i", "z")) if self.rng.random() < 0.5 else "z"
                written = new("TensorArrayWriteV3", gradient, index, self.float(), gradient + ":1")
                self.floats.append(new("TensorArrayReadV3", gradient, "z", written))
        elif kind == "stack":
            stack = new("StackV2", "z")
            new("StackPushV2", stack, self.float())
            self.floats.append(new("StackPopV2", stack))
            if self.rng.random() < 0.2:
                new("Unlisted@r", stack)
        else:
            stored = new("TensorListSetItem", new("TensorListReserve", "z", "z"), "z", self.float())
            handed = new(self.rng.choice(["Identity@v", "Unlisted@v", "Identity@v"]), stored)
            if kind == "list":
                self.floats.append(new("TensorListGetItem", handed, "z", "z"))
            else:
                self.floats.append(new("TensorListPopBack", handed, "z") + ":1")

    def variable(self):
        """A reference variable that is read and written."""
        variable = self.new("VariableV2")
        read = self.new("Identity", variable)
        self.writers.append(self.new(self.rng.choice(["AssignAdd", "Assign"]), variable, self.float()))
        self.floats += [read, self.new("Identity", variable)]


def random_case(seed):
    """(settings, graph) of a seed."""
    drawing = Drawing(seed)
    rng = drawing.rng
    pieces = [drawing.compute] * 6 + [drawing.special] * 3 + [drawing.loop, drawing.container] + [drawing.variable]
    while drawing.count < rng.randint(6, 22):
        rng.choice(pieces)()
    names = [statement.partition(":")[0] for statement in drawing.statements if statement.startswith("n")]
    floats = [name for name in drawing.floats if name[0] == "n"]
    mode = "allow_mix_precision" if rng.random() < 0.6 else rng.choice(sorted(PRECISION_MODE))
    settings = {
        "mode": mode,
        "feeds": [rng.choice(floats)] if floats and rng.random() < 0.15 else [],
        "fetches": sorted(rng.sample(names, min(2, len(names)))) if rng.random() < 0.4 else [],
        "missing": [rng.choice(["MatMul", "Relu", "Enter", "NextIteration", "TensorArrayReadV3", "Reshape"])]
        if rng.random() < 0.2 else [],
        "slow": ["MatMul", "Mul"] if rng.random() < 0.25 else [],
        "sums": ["nothing"] if rng.random() < 0.5 else [],
    }  # fmt: skip
    text = " ".join("%s=%s" % (key, value if key == "mode" else ",".join(value)) for key, value in settings.items())
    return text, " ".join(drawing.statements)


def cases():
    """(settings, graph, lines of the plan) of every case in the file."""
    for block in GOLDEN.read_text().split("\n\n"):
        settings, text, *lines = block.strip().splitlines()
        yield settings, text, lines


def _shows(text, lines):
    """What a plan is an example of: (op, change and reason of a slot, way), and kinds of casts."""
    ops = dict(re.findall(r"(\w+):(\w+)", text))
    slots, _, rest = " ".join(lines).partition("casts: ")
    decided = re.findall(r"(\w+)[.\w]*:(\w+,\w+)(?:<[\w.]+)?(/\w+)?", slots)
    shown = {(ops.get(name), *what) for name, *what in decided}
    shown |= {(what, ops.get(cause)) for what, cause in re.findall(r",(\w+)<(\w+)", slots)}
    shown |= {(ops.get(name), *kind) for name, *kind in re.findall(r"(\w+)-\d-to-\w+(-rounded)?:(\w+)([<=])", rest)}
    return shown | {word for word in ("^", "outside: ", "reads: ", "error: ") if word in " ".join(lines)}


def _drawn(count):
    seen = set()
    for seed in range(count):
        settings, text = random_case(seed)
        shown = _shows(text, planned(settings, text))
        if not shown <= seen:
            seen |= shown
            yield settings, text


if __name__ == "__main__":
    chosen = _drawn(int(sys.argv[1])) if sys.argv[1:] else [(settings, text) for settings, text, _ in cases()]
    blocks = ["\n".join([settings, text, *planned(settings, text)]) for settings, text in chosen]
    GOLDEN.write_text("\n\n".join(blocks) + "\n")
