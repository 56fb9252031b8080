"""Two processes train as one on all data: buckets, sparse gradients, sharded updates, loss scales, odd graphs.

The cases of rank_cases.py run in one pair of processes; `NPU_SHIM_NIGHTLY` runs all of them, in four and on engine
pjrt, too.
"""

import json
import os
import pathlib

import forked
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.distributed.launcher import layout
from npu_shim.options import engine

CASES = pathlib.Path(__file__).with_name("rank_cases.py")
NIGHTLY = pytest.mark.nightly
WITH_JAX = pytest.mark.skipif(not engine.has_jax(), reason="JAX is not beside this TensorFlow")
ANY_JAX = pytest.mark.skipif(
    not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none"
)
RUNS = [
    pytest.param((2, ""), id="two"),
    pytest.param((4, ""), marks=NIGHTLY, id="four"),
    pytest.param((2, "NPU_SHIM_ENGINE=pjrt NPU_SHIM_RANKS=apart "), marks=[NIGHTLY, WITH_JAX], id="apart"),
    pytest.param((2, "NPU_SHIM_ENGINE=pjrt "), marks=[NIGHTLY, ANY_JAX], id="together"),
    pytest.param((2, "NPU_SHIM_ENGINE=pjrt NPU_SHIM_DEVICES=2 "), marks=[NIGHTLY, ANY_JAX], id="devices"),
]
# by day another case shows how ranks meet
AT_NIGHT = (
    "small_buckets", "split_by_index", "unknown_shapes", "sharded_by_norm", "sharded_sparse_by_norm", "compiled",
    "second_graph", "differentiated",
)  # fmt: skip
LEFT_OUT = () if os.environ.get("NPU_SHIM_NIGHTLY") else AT_NIGHT
EPSILON = np.finfo(np.float32).eps


@pytest.fixture(scope="module", params=RUNS)
def ranks(request):
    """What each rank found: list of dicts by case."""
    size, environment = request.param
    hosts = ",".join("localhost:%d" % port for port in layout.free_ports(size))
    line = environment + "RANK_SIZE=%d RANK_ID=%d NPU_SHIM_HOSTS=%s CUDA_VISIBLE_DEVICES= python %s %s"
    with forked.server() as together:
        words = (hosts, CASES, " ".join(LEFT_OUT))
        ended = together([(line % (size, rank, *words), CASES.parent) for rank in range(size)])
    assert not any(rank.status for rank in ended), "\n".join(rank.output for rank in ended)
    # behind what it has found a rank tells of the steps that its loss scales have skipped
    return [json.loads([line for line in rank.output.splitlines() if line[0:1] == "{"][-1]) for rank in ended]


def agree(results, case, tolerance=64 * EPSILON):
    """Asserts that all ranks have the same bits after each step, and one process's values; returns the first rank's."""
    one = results[0][case]
    for other in results:
        assert other[case]["digests"] == one["digests"]
        assert other[case]["expected"] == one["expected"]
    assert len(set(one["digests"])) == len(one["digests"])  # each step moved something
    for name, values in one["values"].items():
        # a few steps, each with sums over some rows that ranks add in another order
        np.testing.assert_allclose(values, one["expected"][name], atol=tolerance, rtol=tolerance, err_msg=name)
    return one


def test_500_small_variables_need_one_collective(ranks):
    assert agree(ranks, "many_small")["CollectiveReduce"] == 1


def test_ranks_that_build_in_another_order_meet(ranks):
    assert agree(ranks, "another_order")["CollectiveReduce"] == 1


@NIGHTLY
def test_a_full_bucket_is_closed(ranks):
    # 12, 48 and 96 bytes of the last layers, then each alone
    assert agree(ranks, "small_buckets")["CollectiveReduce"] == 3


@NIGHTLY
def test_gradients_are_split_where_the_script_says(ranks):
    assert agree(ranks, "split_by_index")["CollectiveReduce"] == 3


def test_digits_in_sessions_and_by_an_estimator(ranks):
    one = agree(ranks, "digits", 8 * 64 * EPSILON)  # 8 steps of sums over 64
    for rank in ranks:
        assert rank["digits_estimator"]["seen"] == one["values"]


@NIGHTLY
def test_shapes_that_are_known_late(ranks):
    assert agree(ranks, "unknown_shapes")["CollectiveReduce"] == 1


def test_ranks_have_different_numbers_of_slices(ranks):
    one = agree(ranks, "sparse_unequal")
    # one of counts, one of values, one of indices, for both tables
    assert one["CollectiveReduce"] + one["CollectiveGather"] == 3


def test_many_slices_of_a_small_table_travel_as_the_table(ranks):
    one = agree(ranks, "sparse_as_dense")
    assert (one["CollectiveReduce"], one["CollectiveGather"]) == (1, 0)
    assert one["values"]["table"][7] == one["expected"]["table"][7]


# the gradients' sums by parts, half an allreduce; TensorFlow 1.15 has no collective for it
SCATTER = "CollectiveReduce" if tf.__version__.startswith("1.") else "CollectiveAllToAllV2"


@pytest.mark.parametrize("case", ["sharded_momentum", "sharded_adam"])
def test_ranks_share_the_update(ranks, case):
    one = agree(ranks, case)
    kinds = ("CollectiveReduce", "CollectiveGather", "CollectiveAllToAllV2")
    assert {kind: one[kind] for kind in kinds if one[kind]} == {SCATTER: 1, "CollectiveGather": 1}


@pytest.mark.parametrize("case", [
    pytest.param("sharded_by_norm", marks=NIGHTLY), "sharded_sparse",
    pytest.param("sharded_sparse_by_norm", marks=NIGHTLY),
])  # fmt: skip
def test_ranks_that_share_the_update_run_the_same_collectives(ranks, case):
    """A global norm needs all gradients; it was an error where one rank has all variables of a bucket."""
    agree(ranks, case)


def test_an_overflow_of_one_rank_skips_the_step_of_all(ranks):
    """Also of a whole window of accumulated gradients; and the next scale is the same everywhere."""
    one = ranks[0]["overflows"]["seen"]
    assert all(other["overflows"]["seen"] == one for other in ranks)
    for name, seen in one.items():
        scales, digests = zip(*seen["scale"])
        skipped = [after == before for before, after in zip(digests, digests[1:])]
        if name.startswith("accumulated"):  # windows of two steps: the second one overflows, the last one is not full
            assert scales == (1024, 1024, 1024, 512, 512, 512, 512)
            assert skipped == [False, True, True, True, False, True]
        else:
            assert scales == (1024, 2048, 1024, 1024, 2048, 2048, 4096)
            assert skipped == [False, True, False, False, False, False]
    # gradients, and whether all are finite; a rank that shares the update looks at its own gradients only
    assert one["distributed"]["CollectiveReduce"] == 2
    assert one["sharded"]["CollectiveReduce"] + one["sharded"]["CollectiveAllToAllV2"] == 2


def test_a_sharded_checkpoint_is_whole(ranks):
    """One rank saves, and has the slots that others update."""
    seen = ranks[-1]["sharded_checkpoint"]["seen"]
    assert "layer_2/Momentum" in seen["plain"]
    assert sorted(seen["sharded"]) == sorted(seen["plain"])
    for name, values in seen["plain"].items():
        assert np.any(values)
        np.testing.assert_allclose(seen["sharded"][name], values, atol=64 * EPSILON, rtol=64 * EPSILON, err_msg=name)


def test_gradients_travel_in_the_dtype_that_the_environment_says(ranks):
    one = ranks[0]["travelling"]["seen"]
    assert all(rank["travelling"]["seen"] == one for rank in ranks)
    assert one["own"] == [1.0, 1 + 2.0**-11, 40000.0]
    # TensorFlow 1.15's collectives take no float16: it travels as float32 there
    assert one["float16"] == [1.0, 1.0, 40000.0 if tf.__version__.startswith("1.") else np.inf]
    assert one["wide"] == one["low"] == [1.0, 1.0, 40000.0]
    assert one["bfloat16"] == [1.0, 1.0, 39936.0]


def test_calls_are_fused_as_their_arguments_say(ranks):
    size = len(ranks)
    one = np.array([sum(range(size)), size, 2 * size])  # the sum of the ranks' inputs
    expected = [one * (2 + at) for at in range(6)] + [(one * 2 * 5 * size).reshape(3, 1), [0, 1, 2**size]]
    for rank in ranks:
        seen = rank["calls"]["seen"]
        for values, _ in seen.values():
            assert all(np.array_equal(value, other) for value, other in zip(values, expected))
        # the sums, what needs them, and the product: another dtype
        assert {name: count for name, (_, count) in seen.items()} == {"by bytes": 3, "by id": 4, "alone": 8}


@NIGHTLY
def test_xla_compiles_what_lies_around_a_collective(ranks):
    for rank in ranks:
        plain, by_xla = rank["compiled"]["seen"]
        np.testing.assert_allclose(by_xla, plain, atol=64 * EPSILON)
        assert plain == ranks[0]["compiled"]["seen"][0]


@NIGHTLY
def test_collectives_of_a_second_graph(ranks):
    """TensorFlow remembers what dtype and shape an instance key had in the first."""
    size = len(ranks)
    rows = [[rank, 1.0] for rank in range(size)]
    flags = [[float(bool(rank)), 1.0] for rank in range(size)]
    for one in ranks:
        for number, seen in enumerate(one["second_graph"]["seen"]):
            expected = flags if number == 3 else rows
            assert seen[:2] == [expected, [expected[-1]]]
            assert seen[2:] in ([], [[expected[-1]]])


@NIGHTLY
def test_gradients_of_collectives_are_those_of_the_sum_over_all_ranks(ranks):
    """Those of max, min and prod were another's numbers, that of broadcast stood still, that of allgather an error."""
    for rank in ranks:
        seen = rank["differentiated"]
        for name, expected in seen["expected"].items():
            np.testing.assert_allclose(seen["found"][name], expected, rtol=64 * EPSILON, err_msg=name)


def test_what_is_empty_everywhere_stays_empty(ranks):
    """TensorFlow's collectives end the process at tensors without elements."""
    wanted = {name: [0, 3] for name in ("sum", "gathered", "scattered", "slices")}
    assert all(rank["empty"]["shapes"] == wanted for rank in ranks)
