"""customize_dtypes: a text file that gives the dtypes of single ops, by node name or by op type, one line each.

    resnet/block1/Relu::InputDtype:float16,OutputDtype:float32
    OpType::MatMulV2:InputDtype:float16,float16,float32,OutputDtype:float32

An empty slot leaves a dtype unspecified. Source: the parser of Ascend's fusion engine and its documentation. Where that
parser rejects the blank and # lines that the documentation shows, this one accepts them.
"""

from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from npu_shim.options.ops.op_names import Unmatched, unmatched
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.tables.dtypes import NUMBERS
from npu_shim.rewriter.tables.op_table import OpTable

OPTION = "customize_dtypes"
LONGEST = 1024  # characters of a line
BY_TYPE, INPUTS, OUTPUTS = "OpType::", "InputDtype:", "OutputDtype:"
FORM = "'NODE::InputDtype:D,...,OutputDtype:D,...' or 'OpType::TYPE:InputDtype:D,...,OutputDtype:D,...'"

# the engine's names of dtypes -> TensorFlow's
_NO_ARITHMETIC = ("invalid", "resource", "variant")
_ALIASES = {"float": "float32", "double": "float64", "bf16": "bfloat16"}
DTYPES: Mapping[str, str] = {**{name: name for name in NUMBERS if name not in _NO_ARITHMETIC}, **_ALIASES}

Dtypes = Tuple[Optional[str], ...]


@dataclass(frozen=True)
class Custom:
    """The dtypes that a line requests of an op: TensorFlow's names by input and output number, None for unspecified.

    If there are fewer entries than inputs or outputs, the rest is unspecified. There may also be more: Ascend's
    MatMulV2 has a third input that TensorFlow's MatMul lacks. So it is in the original, which passes over both without
    a word; see `surplus`.

    Attributes:
        replaced: whether the op is one by which TensorFlow has replaced what the line speaks of: inputs may be others.
    """

    inputs: Dtypes
    outputs: Dtypes
    line: int
    replaced: bool = False


@dataclass(frozen=True)
class Customized:
    """A read file.

    Attributes:
        path: of the file.
        by_name: node name -> the request for the node; it wins over `by_op`.
        by_op: TensorFlow op type -> the request for its nodes.
        warnings: lines that have no effect, because an earlier line has the same subject.
        unmatched: op types that stand for no op.
    """

    path: str
    by_name: Mapping[str, Custom]
    by_op: Mapping[str, Custom]
    warnings: Tuple[str, ...] = ()
    unmatched: Tuple[Unmatched, ...] = ()


@dataclass(frozen=True)
class _Line:
    """One line; `op_type` tells whether `name` is an op type or a node name."""

    name: str
    op_type: bool
    custom: Custom


def read(path: str, table: OpTable) -> Customized:
    """Reads a customize_dtypes file.

    Args:
        path: as the user gave it; a relative path starts at the working directory. UTF-8 text.
        table: says which TensorFlow ops an op type stands for.

    Raises:
        ConfigError: (INTERNAL, as the bridge answers) the file is missing or unreadable, or lines that cannot be read;
            the message has every one of them with its number.
    """
    try:
        with open(path, encoding="utf-8-sig") as f:
            text = f.read()
    except OSError as reason:
        what = reason.strerror or reason
        raise ConfigError("%s: file '%s' cannot be read: %s" % (OPTION, path, what), code="INTERNAL") from reason
    except ValueError as reason:
        what = "cannot be read as UTF-8 text: %s" % reason
        raise ConfigError("%s: file '%s' %s" % (OPTION, path, what), code="INTERNAL") from reason
    return parse(text, path, table)


def parse(text: str, path: str, table: OpTable) -> Customized:
    """Reads the text of a file; `path` is its name in messages. Raises as `read` does."""
    lines: List[_Line] = []
    problems: List[str] = []
    for number, content in enumerate(text.split("\n"), 1):
        content = content.strip()
        if not content or content.startswith("#"):
            continue
        try:
            lines.append(_parse_line(content, number))
        except ValueError as reason:
            problems.append("%s: file '%s', line %d: %s" % (OPTION, path, number, reason))
    if problems:
        raise ConfigError(*problems, code="INTERNAL")
    return _collect(lines, path, table)


def _parse_line(content: str, number: int) -> _Line:
    """Reads one line; raises ValueError with what is wrong."""
    if len(content) > LONGEST:
        raise ValueError("%d characters, at most %d are read" % (len(content), LONGEST))
    name, separator, dtypes = content.partition("::")
    op_type = content.startswith(BY_TYPE)
    if op_type:
        name, separator, dtypes = dtypes.partition(":")
    name = name.strip()
    if not name or not separator:
        raise ValueError("%s, expected %s" % (_shorten(content), FORM))
    inputs, outputs = _sections(dtypes.strip(), content)
    return _Line(name, op_type, Custom(_dtypes(inputs), _dtypes(outputs), number))


def _sections(text: str, content: str) -> Tuple[str, str]:
    """The dtypes of the inputs and those of the outputs, either of which may be absent."""
    if text.startswith(OUTPUTS):
        return "", text[len(OUTPUTS) :]
    if not text.startswith(INPUTS):
        raise ValueError("%s, expected %s" % (_shorten(content), FORM))
    inputs, separator, outputs = text[len(INPUTS) :].partition(OUTPUTS)
    if separator:
        inputs = inputs.rstrip()
        if inputs and not inputs.endswith(","):
            raise ValueError("a comma is missing before '%s'" % OUTPUTS)
        inputs = inputs[:-1]
    return inputs, outputs


def _dtypes(text: str) -> Dtypes:
    """"float16,,Float" -> ("float16", None, "float32"); nothing -> ()."""
    if not text.strip():
        return ()
    return tuple(map(_dtype, text.split(",")))


def _dtype(text: str) -> Optional[str]:
    word = text.strip()
    if not word:
        return None
    if word.lower() not in DTYPES:
        raise ValueError("%s is not a dtype%s" % (_shorten(word), nearest(word, DTYPES)))
    return DTYPES[word.lower()]


def _shorten(text: str) -> str:
    return "'%s'" % (text if len(text) <= 60 else text[:57] + "...")


def _collect(lines: List[_Line], path: str, table: OpTable) -> Customized:
    by_name: Dict[str, Custom] = {}
    by_op: Dict[str, Custom] = {}
    warnings: List[str] = []
    missing: List[Unmatched] = []
    for line in lines:
        into, names = (by_op, table.ops(line.name)) if line.op_type else (by_name, (line.name,))
        if not names and line.name not in {other.name for other in missing}:
            missing.append(unmatched(OPTION, line.name, table))
        warnings += _warn_repeated(line, names, into, path)
        for name in names:
            into.setdefault(name, line.custom)
    return Customized(path, by_name, by_op, tuple(warnings), tuple(missing))


def _warn_repeated(line: _Line, names: Tuple[str, ...], into: Mapping[str, Custom], path: str) -> Iterator[str]:
    """Yields a warning for a line whose ops already have one: the first line wins, as in the original."""
    for first in sorted({into[name].line for name in names if name in into}):
        ops = ", ".join(name for name in names if name in into and into[name].line == first)
        where = "%s: file '%s', line %d: %s" % (OPTION, path, line.custom.line, ops)
        yield "%s has its dtypes from line %d already; the first counts" % (where, first)


def surplus(customized: Customized, name: str, op: str, inputs: int, outputs: int) -> Iterator[str]:
    """Yields a line for the inputs, and one for the outputs, of which a request for a node has more than there are.

    A request for an op type may have more, for the inputs that Ascend's op has and TensorFlow's lacks.

    Args:
        customized: the file; it has a request for the node by its name.
        name: the node's.
        op: its TensorFlow op type.
        inputs: how many it has.
        outputs: the same.
    """
    custom = customized.by_name[name]
    if custom in customized.by_op.values():  # of a node that stands for one of that type
        return
    for word, asked, count in ((INPUTS, custom.inputs, inputs), (OUTPUTS, custom.outputs, outputs)):
        if any(asked[count:]):
            where = "%s: file '%s', line %d" % (OPTION, customized.path, custom.line)
            words = word + ",".join(dtype or "" for dtype in asked)
            what = "input" if word == INPUTS else "output"
            text = "%s: '%s' has %d dtypes, and '%s' (op %s) has %d %s%s; what is beyond asks for nothing"
            yield text % (where, words, len(asked), name, op, count, what, "" if count == 1 else "s")
