"""Which probabilities dropout keeps: a function of (seed, row, column), the same bits wherever it is computed.

Threefry-2x32 with 20 rounds (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), which is JAX's own
generator. Its key is the pair of seeds; each of its values is four draws of 16 bits, for four columns:

    threefry(key, (row, c)) = (x0, x1)  ->  columns 4c: low half of x0, 4c + 1: its high half, 4c + 2, 4c + 3: of x1

A row counts all [batch, head, query] in order, a column is a key. A probability is kept where its draw is below
`threshold(rate)`, so that the rate is met to 1 in 131,072.

The rounds are written once, in terms of `Words`, for numpy here and for the kernels (kernels.py).
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
BITS = 16  # of a draw
PER_VALUE = 4  # draws in the 64 bits of a value


class Words(NamedTuple):
    """Arithmetic on arrays of 32-bit words.

    Attributes:
        add: of two, modulo 2**32.
        xor: of two.
        either: bits of one or the other.
        left: a shift by a number of bits.
        right: the same, zeros shifted in.
        constant: a number below 2**31 as such a word.
    """

    add: Callable[[Any, Any], Any]
    xor: Callable[[Any, Any], Any]
    either: Callable[[Any, Any], Any]
    left: Callable[[Any, int], Any]
    right: Callable[[Any, int], Any]
    constant: Callable[[int], Any]


NUMPY = Words(
    np.add, np.bitwise_xor, np.bitwise_or, lambda word, bits: np.left_shift(word, np.uint32(bits)),
    lambda word, bits: np.right_shift(word, np.uint32(bits)), np.uint32,
)  # fmt: skip


def threefry(words: Words, key: Sequence[Any], counter: Sequence[Any]) -> tuple[Any, Any]:
    """Returns the two words of Threefry-2x32-20 for a key and a counter of two words each, which broadcast."""
    keys = (key[0], key[1], words.xor(words.xor(key[0], key[1]), words.constant(PARITY)))
    first, second = words.add(counter[0], keys[0]), words.add(counter[1], keys[1])
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            first = words.add(first, second)
            turned = words.either(words.left(second, bits), words.right(second, 32 - bits))
            second = words.xor(turned, first)
        first = words.add(first, keys[(group + 1) % 3])
        second = words.add(second, words.add(keys[(group + 2) % 3], words.constant(group + 1)))
    return first, second


def threshold(rate: float) -> int:
    """Returns the draw, 0 to 65536, below which a probability is kept under a dropout rate."""
    return round((1.0 - rate) * (1 << BITS))


def kept(seed: Sequence[int], shape: Sequence[int], rate: float) -> Any:
    """Returns which probabilities are kept.

    Args:
        seed: two int32.
        shape: [batch, heads, queries, keys].
        rate: of dropout, 0 to 1.

    Returns:
        np.ndarray of bool, of that shape.
    """
    *rows, columns = shape
    key = [np.asarray(word, np.int64).astype(np.uint32).reshape(1, 1) for word in seed]
    row = np.arange(int(np.prod(rows)), dtype=np.uint32)[:, None]
    column = np.arange(-(-columns // PER_VALUE), dtype=np.uint32)[None, :]
    values = np.stack(threefry(NUMPY, key, (row, column)), -1)
    halves = np.stack([values & np.uint32(0xFFFF), values >> np.uint32(BITS)], -1)
    return (halves.reshape(len(row), -1)[:, :columns] < threshold(rate)).reshape(shape)
