"""What dropout keeps: at the rate that is asked for, and nothing that is near has to do with it."""

import numpy as np
import pytest

from npu_shim.pjrt.attention import draws


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_rate_holds_over_a_million_draws(rate):
    kept = draws.kept((1, 2), (4, 4, 256, 256), rate)  # 1,048,576
    off = 6 * (rate * (1 - rate) / kept.size) ** 0.5 + 2.0**-17
    assert abs(kept.mean() - (1 - rate)) <= off
    for axis in range(4):  # no head, batch, query or key is treated otherwise
        others = tuple(number for number in range(4) if number != axis)
        parts = kept.mean(axis=others)
        assert abs(parts - (1 - rate)).max() <= off * parts.size**0.5


def test_draws_of_neighbours_seeds_and_steps_have_nothing_to_do_with_each_other():
    one = draws.kept((1, 2), (2, 2, 256, 256), 0.5)
    others = [draws.kept(seed, one.shape, 0.5) for seed in ((1, 3), (2, 2), (2, 1))]
    shifted = [np.roll(one, by, axis) for axis in range(4) for by in (1,)] + [np.roll(one, by, 3) for by in (2, 3, 4)]
    for other in others + shifted:
        assert abs((one == other).mean() - 0.5) <= 6 * 0.5 / one.size**0.5
