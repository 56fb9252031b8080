"""Which gradients travel together."""

import random

import pytest

from npu_shim.distributed.collectives import buckets
from npu_shim.distributed.collectives.buckets import Member
from npu_shim.distributed.job import settings
from npu_shim.rewriter.errors import ConfigError


def members(*sizes, dtype="float32"):
    return [Member("layer_%d/w:0" % at, dtype, size) for at, size in enumerate(sizes)]


def names(given, planned):
    return [[given[at].name for at in bucket] for bucket in planned]


def test_numbers_in_names_are_numbers():
    given = ["layer_10/b", "layer_9/b", "layer_1/b", "layer/b", "a/10", "a/010", "A/9"]
    assert sorted(given, key=buckets.natural) == [
        "A/9",
        "a/010",
        "a/10",
        "layer/b",
        "layer_1/b",
        "layer_9/b",
        "layer_10/b",
    ]


def test_the_last_layer_goes_first():
    assert buckets.by_bytes(members(10, 10, 10), 20) == [[2, 1], [0]]


def test_a_large_one_does_not_close_the_bucket_of_the_small_ones():
    assert buckets.by_bytes(members(10, 50, 10, 10), 30) == [[1], [3, 2, 0]]


def test_a_bucket_has_one_dtype():
    given = [*members(4, 4), Member("h", "float16", 2), Member("unknown", "float32", None)]
    assert buckets.by_bytes(given, 100) == [[3, 1, 0], [2]]


@pytest.mark.parametrize(("limit", "expected"), [(0, [[2], [1], [0]]), (float("inf"), [[2, 1, 0]])])
def test_no_fusion_and_all_in_one(limit, expected):
    assert buckets.by_bytes(members(1, 2, 3), limit) == expected


def test_the_order_of_construction_changes_nothing():
    given = [Member("v%d" % at, "float32" if at % 3 else "float16", at * 7 % 64) for at in range(200)]
    mixed = random.Random(0).sample(given, len(given))
    for plan in (
        lambda values: buckets.by_bytes(values, 100),
        lambda values: buckets.by_index(values, [3, 50]),
        lambda values: buckets.by_share(values, [20, 50, 30]),
    ):
        assert names(given, plan(given)) == names(mixed, plan(mixed))


def test_there_are_at_most_one_more_buckets_than_bytes_fill():
    draws = random.Random(1)
    for _ in range(50):
        sizes = [draws.choice([0, 4, 12, 400, 3000]) for _ in range(draws.randint(1, 500))]
        limit = draws.choice([1, 64, 1000, 4096])
        planned = buckets.by_bytes(members(*sizes), limit)
        assert sorted(at for bucket in planned for at in bucket) == list(range(len(sizes)))
        assert len(planned) - sum(size >= limit for size in sizes) <= 1 + sum(sizes) / limit


def test_500_small_ones_are_one_bucket():
    assert len(buckets.by_bytes(members(*[12] * 500), settings.bucket_bytes(2))) == 1


def test_split_by_index():
    assert buckets.by_index(members(1, 1, 1, 1, 1), [1, 4]) == [[4, 3], [2, 1, 0]]
    assert buckets.by_index(members(1, 1, 1), [0]) == [[2], [1, 0]]  # what is left over is the last one
    assert buckets.by_index(members(1, 1), [7, 9]) == [[1, 0]]  # fewer gradients than the script says


def test_split_by_size():
    assert buckets.by_share(members(10, 10, 10, 10), [50, 50]) == [[3, 2], [1, 0]]
    assert buckets.by_share(members(10, 10, 10, 10), [0, 25, 75]) == [[3], [2, 1, 0]]
    assert buckets.by_share(members(90, 10), [50, 50]) == [[1], [0]]  # a tensor is not cut


def test_what_the_environment_says(monkeypatch):
    monkeypatch.setenv(settings.BUCKET, "0.5")
    monkeypatch.setenv(settings.DTYPE, "bfloat16")
    monkeypatch.setenv(settings.SUMS, "float32")
    assert (settings.bucket_bytes(2), settings.gradient_dtype(), settings.sums_are_float32()) == (
        2**19,
        "bfloat16",
        True,
    )


@pytest.mark.parametrize("text", ["-1", "much", "inf", "nan"])
def test_a_wrong_size_is_told(monkeypatch, text):
    monkeypatch.setenv(settings.BUCKET, text)
    with pytest.raises(ConfigError, match="NPU_SHIM_BUCKET_MB='%s'" % text):
        settings.bucket_bytes(2)


def test_a_wrong_word_is_told(monkeypatch):
    monkeypatch.setenv(settings.DTYPE, "float-16")
    with pytest.raises(ConfigError, match=r"NPU_SHIM_GRADIENT_DTYPE='float-16'.*did you mean"):
        settings.gradient_dtype()
