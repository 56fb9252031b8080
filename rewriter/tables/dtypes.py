"""TensorFlow's dtype numbers (`DataType` in types.proto) and their names, without TensorFlow."""

from typing import Dict, FrozenSet, NamedTuple, Tuple

NAMES: Tuple[str, ...] = (
    "invalid", "float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool",
    "qint8", "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16", "complex128", "float16", "resource",
    "variant", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn",
)  # fmt: skip
NUMBERS: Dict[str, int] = {name: number for number, name in enumerate(NAMES)}

FLOAT32 = NUMBERS["float32"]
FLOAT16 = NUMBERS["float16"]
BFLOAT16 = NUMBERS["bfloat16"]
LOW: FrozenSet[int] = frozenset({FLOAT16, BFLOAT16})
# the dtypes that a rewrite may change into each other; float64 is a choice of its author and stays
FLOATS: FrozenSet[int] = LOW | {FLOAT32}
HANDLES: FrozenSet[int] = frozenset({NUMBERS["resource"], NUMBERS["variant"]})
INFINITE_FROM = 65520.0  # float16 rounds this and what is larger to infinity
ZERO_UP_TO = 2.0**-25  # float16 rounds this and what is smaller to zero


class Limits(NamedTuple):
    """The largest finite number of a dtype, and the smallest one that it rounds to infinity."""

    largest: float
    infinite_from: float


LIMITS: Dict[int, Limits] = {
    FLOAT16: Limits(65504.0, INFINITE_FROM),
    BFLOAT16: Limits(2.0**128 - 2.0**120, 2.0**128 - 2.0**119),
}
REF = 100  # a reference dtype is its base dtype plus this (types.proto)


def number(text: str) -> int:
    """The dtype number of what `name` gives, but for references; KeyError for another word."""
    return int(text[len("dtype") :]) if text.startswith("dtype") else NUMBERS[text]


def name(dtype: int) -> str:
    """Name of a dtype number, for example "float16"; reference dtypes end in "_ref"."""
    if dtype > REF:
        return name(dtype - REF) + "_ref"
    return NAMES[dtype] if 0 <= dtype < len(NAMES) else "dtype%d" % dtype
