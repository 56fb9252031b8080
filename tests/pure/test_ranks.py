"""Ranks and groups, as the environment tells them."""

import json

import pytest

from npu_shim.distributed.job import ranks

NAMES = """
NPU_SHIM_HOSTS NPU_SHIM_PORT RANK_TABLE_FILE
RANK_SIZE CM_WORKER_SIZE RANK_ID CM_RANK_ID DEVICE_ID ASCEND_DEVICE_ID LOCAL_RANK_SIZE
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in NAMES.split():
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    ranks._groups.clear()
    ranks._splits.clear()


def test_one_process_is_rank_0_of_1():
    assert (ranks.get_rank_size(), ranks.get_rank_id()) == (1, 0)
    assert (ranks.get_local_rank_size(), ranks.get_local_rank_id()) == (1, 0)
    assert ranks.get_world_rank_from_group_rank(ranks.WORLD, 0) == 0
    assert ranks.get_group_rank_from_world_rank(0, ranks.WORLD) == 0


def test_eight_processes_on_two_machines(environment):
    environment.setenv("RANK_SIZE", "8")
    environment.setenv("RANK_ID", "5")
    environment.setenv("LOCAL_RANK_SIZE", "4")
    assert (ranks.get_rank_size(), ranks.get_rank_id()) == (8, 5)
    assert (ranks.get_local_rank_size(), ranks.get_local_rank_id()) == (4, 1)
    environment.setenv("DEVICE_ID", "3")
    assert ranks.get_local_rank_id() == 3


def test_group_ranks_follow_the_order_given(environment):
    environment.setenv("RANK_SIZE", "8")
    environment.setenv("RANK_ID", "5")
    ranks.create_group("odd", 4, [7, 5, 3, 1])
    assert (ranks.get_rank_size("odd"), ranks.get_rank_id("odd")) == (4, 1)
    assert [ranks.get_world_rank_from_group_rank("odd", i) for i in range(4)] == [7, 5, 3, 1]
    assert ranks.get_group_rank_from_world_rank(1, "odd") == 3
    ranks.destroy_group("odd")
    with pytest.raises(ValueError, match=r"^npu_shim: there is no group 'odd'"):
        ranks.get_rank_size("odd")


@pytest.mark.parametrize(
    ("number", "members", "words"),
    [
        (2, [0, 0], "different ranks"),
        (3, [0, 1], "3 different ranks"),
        (2, [0, 2], "below RANK_SIZE=2"),
    ],
)
def test_a_group_needs_different_ranks_of_this_job(environment, number, members, words):
    environment.setenv("RANK_SIZE", "2")
    with pytest.raises(ValueError, match=words):
        ranks.create_group("g", number, members)
    assert ranks._groups == {}


def test_a_process_outside_a_group_has_no_rank_in_it(environment):
    environment.setenv("RANK_SIZE", "2")
    environment.setenv("RANK_ID", "0")
    ranks.create_group("first", 1, [0])
    assert ranks.get_rank_id("first") == 0
    environment.setenv("RANK_ID", "1")
    with pytest.raises(ValueError, match=r"rank 1 is not in group first, which has \[0\]"):
        ranks.get_rank_id("first")


def test_a_misspelt_group_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"did you mean 'hccl_world_group'"):
        ranks.get_rank_size("hccl_word_group")


@pytest.mark.parametrize("text", ["two", "1.5"])
def test_the_environment_must_hold_whole_numbers(environment, text):
    environment.setenv("RANK_SIZE", text)
    with pytest.raises(ValueError, match=r"^npu_shim: RANK_SIZE='%s' in the environment" % text):
        ranks.get_rank_size()


def test_a_rank_must_be_below_the_size(environment):
    environment.setenv("RANK_SIZE", "2")
    environment.setenv("RANK_ID", "2")
    with pytest.raises(ValueError, match="RANK_ID=2 in the environment is not below RANK_SIZE=2"):
        ranks.get_rank_id()


def test_both_names_of_the_size_are_one_too_many(environment):
    environment.setenv("CM_WORKER_SIZE", "4")
    assert ranks.get_ranksize() == 4
    environment.setenv("RANK_SIZE", "4")
    with pytest.raises(ValueError, match="both set"):
        ranks.get_ranksize()


def test_splits_are_checked():
    ranks.set_split_strategy_by_idx([10, 40])
    ranks.set_split_strategy_by_size([60, 20, 20])
    with pytest.raises(ValueError, match="rising"):
        ranks.set_split_strategy_by_idx([40, 10])
    with pytest.raises(ValueError, match="add up to 100"):
        ranks.set_split_strategy_by_size([60, 20])


def test_addresses_of_one_machine(environment):
    environment.setenv("RANK_SIZE", "2")
    environment.setenv("NPU_SHIM_PORT", "30000")
    assert ranks.addresses() == ["localhost:30000", "localhost:30001"]


def test_addresses_by_the_rank_table(environment, tmp_path):
    servers = [
        {"server_id": "10.0.0.2", "device": [{"device_id": "0", "rank_id": "1"}]},
        {"server_id": "10.0.0.1", "device": [{"device_id": "0", "rank_id": "0"}]},
    ]
    (tmp_path / "table.json").write_text(json.dumps({"server_count": "2", "server_list": servers}))
    environment.setenv("RANK_TABLE_FILE", str(tmp_path / "table.json"))
    environment.setenv("RANK_SIZE", "2")
    assert ranks.addresses() == ["10.0.0.1:28700", "10.0.0.2:28701"]


def test_addresses_as_given_must_be_as_many_as_ranks(environment):
    environment.setenv("RANK_SIZE", "2")
    environment.setenv("NPU_SHIM_HOSTS", "a:1, b:2")
    assert ranks.addresses() == ["a:1", "b:2"]
    environment.setenv("NPU_SHIM_HOSTS", "a:1")
    with pytest.raises(ValueError, match="NPU_SHIM_HOSTS has 1 addresses for RANK_SIZE=2 ranks: a:1"):
        ranks.addresses()
