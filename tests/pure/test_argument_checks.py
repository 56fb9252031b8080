import os

import pytest

from npu_shim.distributed.sharding import shards
from npu_shim.options.entrances import argument_checks as checks

GOOD = [
    (checks.check_not_none, (0, "x"), None),
    (checks.check_positive_integer, (1, "x"), None),
    (checks.check_nonnegative_integer, (0, "x"), None),
    (checks.check_bool_type, (False, "x"), None),
    (checks.convert_bool_to_int, (True,), 1),
    (checks.convert_bool_to_int, (False,), 0),
    (checks.convert_bool_to_int, (1,), -1),
    (checks.format_string, (None, "x"), ""),
    (checks.format_string, ("a", "x"), "a"),
    (checks.check_profiling_options, (["training_trace", "op_trace"],), "training_trace:op_trace"),
    (checks.check_aoe_mode, ("3",), None),
    (checks.check_mstune_mode, ("4",), None),
]
BAD = [
    (checks.check_not_none, (None, "x"), ValueError, "x must not be None"),
    (checks.check_positive_integer, (0, "x"), ValueError, "x must be positive, got 0"),
    (checks.check_positive_integer, ("1", "x"), TypeError, "x must be int, got <class 'str'>"),
    (checks.check_nonnegative_integer, (-1, "x"), ValueError, "x must not be negative, got -1"),
    (checks.check_nonnegative_integer, (1.0, "x"), TypeError, "x must be int"),
    (checks.check_bool_type, (1, "x"), TypeError, "x must be True or False, got 1"),
    (checks.format_string, (3, "x"), TypeError, "x must be str"),
    (checks.check_profiling_options, (["task_trac"],), ValueError, "did you mean 'task_trace'?"),
    (checks.check_profiling_options, ([],), ValueError, "profiling options must be among"),
    (checks.check_aoe_mode, ("5",), ValueError, "aoe_mode must be one of 1, 2, 3, 4, got '5'"),
    (checks.check_mstune_mode, (1,), ValueError, "mstune_mode must be one of"),
    (checks.check_path, ("/no/such/folder",), ValueError, "must be a folder"),
]


@pytest.mark.parametrize(("check", "arguments", "expected"), GOOD)
def test_what_is_right_passes(check, arguments, expected):
    assert check(*arguments) == expected


@pytest.mark.parametrize(("check", "arguments", "error", "words"), BAD)
def test_what_is_wrong_is_named(check, arguments, error, words):
    with pytest.raises(error) as caught:
        check(*arguments)
    assert str(caught.value).startswith("npu_shim: ")
    assert words in str(caught.value)


def test_a_path_comes_back_real(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert checks.check_path(str(tmp_path / "link")) == os.path.realpath(str(tmp_path))


class Item:
    def __init__(self, size):
        self.size, self.root_rank_id = size, -1


@pytest.mark.parametrize(
    ("sizes", "ranks", "owners"),
    [
        ([4, 4, 4, 4], 2, [0, 0, 1, 1]),
        ([9, 1, 1, 1], 2, [0, 1, 1, 1]),  # the large one has a rank of its own
        ([1, 1, 9, 1], 2, [0, 0, 1, 1]),  # the mean without the large one is 3
        ([5, 1, 1, 5], 3, [0, 1, 1, 2]),
        ([3, 2, 1], 3, [0, 1, 2]),
        ([3, 3, 3, 1], 2, [0, 0, 1, 1]),  # 6 is as near to the mean of 5 as 3 is not
        ([2, 2], 1, [0, 0]),
    ],
)
def test_neighbours_are_divided_fairly(sizes, ranks, owners):
    items = [Item(size) for size in sizes]
    assert shards.fair_division(items, ranks) is items
    assert [item.root_rank_id for item in items] == owners


@pytest.mark.parametrize("ranks", range(1, 8))
def test_every_rank_owns_some_and_every_item_has_an_owner(ranks):
    items = shards.fair_division([Item((7 * n) % 5 + 1) for n in range(12)], ranks)
    owners = [item.root_rank_id for item in items]
    assert owners == sorted(owners)
    assert set(owners) == set(range(ranks))


def test_more_ranks_than_items_is_an_error():
    with pytest.raises(ValueError, match=r"^npu_shim: fair_division: 2 ranks for 1 gradients"):
        shards.fair_division([Item(1)], 2)
