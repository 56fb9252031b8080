"""Philox of interpreted steps: the numbers that its authors publish, in one kernel and in a loop."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from npu_shim.step import platforms  # noqa: E402
from npu_shim.step.random import philox  # noqa: E402

# counter, key and block of philox4x32-10 in Random123's kat_vectors
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def wide(low, high):
    return np.uint64(low | high << 32)


def drawn(platform, generator, numbers):
    """Blocks as in a step for a platform, and whether its program has a loop."""
    with jax.enable_x64(True), platforms.traced_for(platform):
        step = jax.jit(lambda *given: philox.blocks(philox.Generator(*given), numbers))
        return np.asarray(step(*generator)), "while" in step.lower(*generator).as_text()


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize(("counter", "key", "block"), KNOWN)
def test_published_numbers(counter, key, block, platform):
    generator = wide(*key), wide(*counter[:2]), wide(*counter[2:])
    values, looped = drawn(platform, generator, np.zeros(philox.FEW, np.uint64))
    assert values.tolist() == [block] * philox.FEW
    assert looped == (platform == "cpu")


@pytest.mark.parametrize("shape", [(300,), (64, 4), (3, 5, 20)])
def test_many_blocks_are_those_of_few(shape):
    """The counter's lower half overflows among these blocks."""
    generator = wide(5, 7), np.uint64(2**64 - 100), np.uint64(11)
    numbers = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    many, looped = drawn("cpu", generator, numbers)
    few, unrolled = drawn("cpu", generator, numbers.reshape(-1)[: philox.FEW - 1])
    assert looped
    assert not unrolled
    np.testing.assert_array_equal(many.reshape(-1, 4)[: philox.FEW - 1], few)
    np.testing.assert_array_equal(many, drawn("cuda", generator, numbers)[0])
