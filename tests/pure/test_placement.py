"""Where the feeds and the state of a program are on several devices. No JAX."""

import types

import pytest

from npu_shim.options import devices, words
from npu_shim.pjrt import placement
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.errors import ConfigError


def seen(count, platform="gpu"):
    """A stand-in for the module jax on a machine with so many devices."""
    there = [types.SimpleNamespace(platform=platform, id=number) for number in range(count)]
    return types.SimpleNamespace(local_devices=lambda: there)


def test_a_feed_is_split_where_its_first_dimension_is_a_multiple():
    four, one = placement.of(seen(8), 4), placement.of(seen(8), 1)
    assert [four.splits(shape) for shape in ([32, 5], [4], [6, 4], [], [0, 4], [2])] == [True, True] + [False] * 4
    assert not one.splits([32, 5])
    assert len(placement.of(seen(8), "all").devices) == 8


def test_state_is_divided_by_its_longest_dimension_that_is_a_multiple_where_its_role_is_asked_for():
    variables = [
        Tensor("state", name, shape, "float32", role)
        for name, shape, role in (
            ("w/Adam", (30522, 1024, 8), "optimizer"), ("w", (4, 12), "parameter"), ("step", (6,), "optimizer")
        )
    ]  # fmt: skip
    slot = variables[0]
    by = {word: placement.of(seen(4), 4, word) for word in placement.SHARDED}
    assert [by["off"].divided(variable) for variable in variables] == [None] * 3
    assert [by["optimizer"].divided(variable) for variable in variables] == [1, None, None]
    assert [by["all"].divided(variable) for variable in variables] == [1, 1, None]
    assert by["optimizer"].bytes_of(slot) * 4 == slot.bytes
    assert placement.of(seen(4), 1, "all").divided(slot) is None
    assert sorted(placement.SHARDED) == sorted(words.SHARD_STATE.known)


def test_more_devices_than_there_are_is_an_error():
    with pytest.raises(ConfigError, match=r"devices is 8, and JAX sees 2 \(gpu\)"):
        placement.of(seen(2), 8)


@pytest.mark.parametrize("word", ["0", "-1", "al", "2.0", 2.0, True, "", None, "4 cards"])
def test_a_word_that_is_no_number_of_devices_is_an_error(word):
    with pytest.raises(ConfigError, match=r"--devices is .*expected a number of devices or 'all'"):
        devices.checked(word, "--devices")


def test_an_option_wins_over_the_environment(monkeypatch):
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    assert devices.of({}) == 1
    monkeypatch.setenv(devices.VARIABLE, "all")
    assert devices.of({}) == "all"
    assert devices.of({devices.KEY: "4"}) == 4
    monkeypatch.setenv(devices.VARIABLE, "eight")
    with pytest.raises(ConfigError, match="NPU_SHIM_DEVICES is 'eight'"):
        devices.of({})


def test_what_each_device_has_whole_is_said():
    from npu_shim.pjrt.placement import undivided

    def said(*shapes, count=4):
        feeds = tuple(Tensor("feed", "x%d:0" % number, shape, "float32") for number, shape in enumerate(shapes))
        return undivided(Manifest(feeds, ()), placement.of(seen(8), count))

    assert said((32, 5), (8,), ()) == said((7,), count=1) == said() == ""
    assert said((32, 5), (7, 2)).endswith("do not divide by 4, and each device has them whole: 'x1:0' [7, 2]")
    assert "no feed of a step can be split over 4 devices ('x0:0' [30, 2])" in said((30, 2), ())
    assert "all are scalars" in said(())
