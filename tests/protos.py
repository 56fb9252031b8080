"""Graphs with functions in the text notation of graphs.py, as messages of TensorFlow's form without TensorFlow.

    def f(x, y) -> r: a:MatMul(x,y) r:Relu(a)          a function: arguments, what it returns, its nodes
    def g(x@i) -> x: r:Relu(b) control r                @i: an int32
    x:Placeholder c:PartitionedCall{f=f}(x,x) c:1 ...   the graph: attributes in braces, functions by their names

One definition a line; the lines that define no function are the graph. `/cpu:0` behind a node's op is its device.
"""

import re

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from npu_shim.rewriter.tables.dtypes import FLOAT16, FLOAT32, NUMBERS

LETTERS = {"f": FLOAT32, "h": FLOAT16, "i": NUMBERS["int32"], "b": NUMBERS["bool"], "r": NUMBERS["resource"]}
NAMES = {number: letter for letter, number in LETTERS.items()}
KINDS = {kind: getattr(descriptor_pb2.FieldDescriptorProto, "TYPE_" + kind.upper()) for kind in (
    "string", "bytes", "int64", "float", "bool", "int32", "uint32", "message")}  # fmt: skip

# message -> fields as "name number type", in TensorFlow's numbers; * repeats, % is a map from strings, # from numbers
MESSAGES = {
    "GraphDef": "node 1 NodeDef* versions 4 VersionDef library 2 FunctionDefLibrary",
    "VersionDef": "producer 1 int32",
    "NodeDef": "name 1 string op 2 string input 3 string* device 4 string attr 5 AttrValue% experimental_type 7 string",
    "AttrValue": "list 1 ListValue s 2 bytes i 3 int64 f 4 float b 5 bool type 6 int32 shape 7 TensorShapeProto "
                 "tensor 8 TensorProto placeholder 9 string func 10 NameAttrList",
    "ListValue": "s 2 bytes* i 3 int64* f 4 float* b 5 bool* type 6 int32* shape 7 TensorShapeProto* "
                 "func 9 NameAttrList*",
    "TensorShapeProto": "dim 2 Dim* unknown_rank 3 bool",
    "Dim": "size 1 int64 name 2 string",
    "TensorProto": "dtype 1 int32 tensor_shape 2 TensorShapeProto tensor_content 4 bytes half_val 13 int32* "
                   "float_val 5 float* int_val 7 int32* string_val 8 bytes* int64_val 10 int64* bool_val 11 bool*",
    "NameAttrList": "name 1 string attr 2 AttrValue%",
    "FunctionDefLibrary": "function 1 FunctionDef* gradient 2 NameAttrList*",
    "FunctionDef": "signature 1 OpDef node_def 3 NodeDef* ret 4 string% attr 5 AttrValue% control_ret 6 string% "
                   "arg_attr 7 ArgAttrs#",
    "ArgAttrs": "attr 1 AttrValue%",
    "OpDef": "name 1 string input_arg 2 ArgDef* output_arg 3 ArgDef* attr 4 AttrDef* is_stateful 17 bool "
             "control_output 20 string*",
    "ArgDef": "name 1 string type 3 int32 type_attr 4 string number_attr 5 string type_list_attr 6 string "
              "is_ref 16 bool experimental_full_type 17 string",
    "AttrDef": "name 1 string type 2 string default_value 3 AttrValue allowed_values 7 AttrValue",
}  # fmt: skip


def _messages():
    file = descriptor_pb2.FileDescriptorProto(name="protos.proto", package="npu_shim_tests", syntax="proto3")
    for name, fields in MESSAGES.items():
        message, words = file.message_type.add(name=name), iter(fields.split())
        if name == "AttrValue":
            message.oneof_decl.add(name="value")
        for field, number, kind in zip(words, words, words):
            added = message.field.add(name=field, number=int(number), label=3 if kind[-1] in "*%#" else 1)
            plain = kind.rstrip("*%#")
            if kind[-1] in "%#":
                entry = message.nested_type.add(name=field.title().replace("_", "") + "Entry")
                entry.options.map_entry = True
                _typed(entry.field.add(name="key", number=1, label=1), "string" if kind[-1] == "%" else "uint32")
                _typed(entry.field.add(name="value", number=2, label=1), plain)
                plain = name + "." + entry.name
            _typed(added, plain)
            if name == "AttrValue":
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = {name: pool.FindMessageTypeByName("npu_shim_tests." + name) for name in MESSAGES}
    if hasattr(message_factory, "GetMessageClass"):
        return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in descriptors.items()}
    factory = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(descriptor) for name, descriptor in descriptors.items()}


def _typed(field, kind):
    field.type = KINDS.get(kind, KINDS["message"])
    if kind not in KINDS:
        field.type_name = ".npu_shim_tests." + kind


CLASSES = _messages()
GraphDef, NodeDef, OpDef, FunctionDef = (CLASSES[name] for name in ("GraphDef", "NodeDef", "OpDef", "FunctionDef"))

NODE = re.compile(r"([\w/.\[\]-]+):(\w+)(@\w)?(/[\w:]+)?(\{[^}]*\})?(?:\(([^)]*)\))?")
FUNCTION = re.compile(r"def (\w+)\(([^)]*)\) -> ([^:]*(?::\w+:\d+[^:]*)*): (.*)")
BRANCHES = {"If": ("else_branch", "then_branch"), "While": ("cond", "body"), "PartitionedCall": ("f",)}


def op_defs():
    """Definitions of the ops that the tests use: one output "out" of type T, or what is said here."""
    defs = {name: OpDef(name=name) for name in ("MatMul", "Relu", "Exp", "Identity", "Add", "Cast", "Less", "Const",
                                                "Placeholder", "Split", "IdentityN", "NoOp", "TopK")}  # fmt: skip
    for name, definition in defs.items():
        if name == "Split":
            definition.output_arg.add(name="out", number_attr="num_split")
            definition.attr.add(name="num_split").default_value.i = 2
        elif name == "IdentityN":
            definition.output_arg.add(name="out", type_list_attr="T")
        elif name == "TopK":
            definition.output_arg.add(name="values")
            definition.output_arg.add(name="indices")
        elif name != "NoOp":
            definition.output_arg.add(name="out")
    for name, taken in (("PartitionedCall", "Tout"), ("If", "Tout"), ("While", "T"), ("Case", "Tout")):
        defs[name] = OpDef(name=name)
        defs[name].output_arg.add(name="output", type_list_attr=taken)
        defs[name].attr.add(name=taken).default_value.list.SetInParent()
    return defs


def parse(text):
    """The GraphDef of a text."""
    graph = GraphDef()
    graph.versions.producer = 1
    for line in filter(None, map(str.strip, text.splitlines())):
        header = FUNCTION.match(line)
        if header:
            _function(graph.library.function.add(), *header.groups())
        else:
            nodes(line, graph.node)
    return graph


def _function(function, name, arguments, returns, body):
    function.signature.name = name
    types = {}
    for argument in filter(None, (word.strip() for word in arguments.split(","))):
        word, _, letter = argument.partition("@")
        types[word] = LETTERS[letter or "f"]
        function.signature.input_arg.add(name=word, type=types[word])
    nodes(body, function.node_def)
    types.update((node.name, node.attr["T"].type or FLOAT32) for node in function.node_def)
    for number, word in enumerate(word.strip() for word in returns.split(",")):
        word, _, letter = word.partition("@")
        dtype = LETTERS[letter] if letter else types[word.split(":")[0]]
        function.signature.output_arg.add(name="r%d" % number, type=dtype)
        function.ret["r%d" % number] = word


def nodes(text, into):
    """Adds the nodes of a text."""
    for name, op, dtype, device, attributes, inputs in NODE.findall(text):
        node = into.add(name=name, op=op, device=device)
        node.input.extend(word.strip() for word in inputs.split(",") if word.strip())
        node.attr["T"].type = LETTERS[dtype[1:] or "f"]
        for attribute in filter(None, attributes.strip("{}").split(";")):
            _attribute(node, *attribute.split("="))


def _attribute(node, key, value):
    """f=name: a function; branches=a,b: functions; Tin=fh: a list of types; N=2: a number; Tcond=b: a type."""
    attr = node.attr[key]
    if key in ("f", "cond", "body", "then_branch", "else_branch"):
        attr.func.name = value
    elif key == "branches":
        for name in value.split(","):
            attr.list.func.add(name=name)
    elif key in ("Tin", "Tout", "T"):
        attr.Clear()
        attr.list.type.extend(LETTERS[letter] for letter in value)
    elif key == "Tcond":
        attr.type = LETTERS[value]
    else:
        attr.i = int(value)


def shown(graph):
    """A GraphDef as text, its functions first; attributes T that are not float32, devices and functions are shown."""
    lines = []
    for function in graph.library.function:
        signature, returned = function.signature, dict(function.ret)
        takes = ", ".join(arg.name + _letter(arg.type) for arg in signature.input_arg)
        gives = ", ".join(returned.get(arg.name, "") + _letter(arg.type) for arg in signature.output_arg)
        body = " ".join(map(_node, function.node_def))
        lines.append("def %s(%s) -> %s: %s" % (signature.name, takes, gives, body))
    return "\n".join([*lines, " ".join(map(_node, graph.node))])


def _letter(dtype):
    return "" if dtype == FLOAT32 else "@" + NAMES[dtype]


def _node(node):
    plain = "T" in node.attr and node.attr["T"].type and node.op not in BRANCHES and node.op != "Case"
    letter = _letter(node.attr["T"].type) if plain else ""
    inputs = "(%s)" % ",".join(node.input) if node.input else ""
    return "%s:%s%s%s%s%s" % (node.name, node.op, letter, node.device, _attributes(node), inputs)


def _attributes(node):
    shown_here = []
    for key in sorted(node.attr):
        value = node.attr[key]
        if value.func.name:
            shown_here.append("%s=%s" % (key, value.func.name))
        elif value.list.func:
            shown_here.append("%s=%s" % (key, ",".join(function.name for function in value.list.func)))
        elif value.list.type:
            shown_here.append("%s=%s" % (key, "".join(NAMES[dtype] for dtype in value.list.type)))
        elif value.i:
            shown_here.append("%s=%d" % (key, value.i))
        elif value.s:
            shown_here.append("%s=%s" % (key, value.s.decode()))
        elif key == "Tcond":
            shown_here.append("Tcond=%s" % NAMES[value.type])
    return "{%s}" % ";".join(shown_here) if shown_here else ""
