"""What describes a job: each source, which of them counts, and what is wrong with it."""

import json
import os

import pytest

from npu_shim.distributed.job import description, rank_table, ranks
from npu_shim.rewriter.errors import ConfigError

TWO_WORKERS = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
CHIEF_AND_WORKERS = {"cluster": {"chief": ["c:9"], "worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
SERVERS = {"cluster": {"ps": ["p:1"], "worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
EVALUATOR = {**TWO_WORKERS, "task": {"type": "evaluator", "index": 0}}
THIRD = {**TWO_WORKERS, "task": {"type": "worker", "index": 2}}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n[01-02]", "SLURM_LOCALID": "1"}
CYCLIC = {**SLURM, "SLURM_DISTRIBUTION": "cyclic", "SLURM_NODEID": "1"}
OPENMPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


def device(number, rank=None):
    fields = {"device_id": str(number), "device_ip": "192.168.1.%d" % number}
    return fields if rank is None else {**fields, "rank_id": str(rank)}


def pods(*instances):
    groups = [{"group_name": "worker", "device_count": "3", "instance_count": "2", "instance_list": list(instances)}]
    return {"group_count": "1", "group_list": groups, "status": "completed"}


# name -> (table, hosts, devices)
TABLES = {
    "1.0": (
        {"version": "1.0", "server_count": "2", "status": "completed", "server_list": [
            {"server_id": "10.0.0.2", "host_nic_ip": "reserve", "device": [device(0, 2)]},
            {"server_id": "10.0.0.1", "host_nic_ip": "reserve", "device": [device(4, 0), device(5, 1)]}]},
        ("10.0.0.1", "10.0.0.1", "10.0.0.2"), (4, 5, 0),
    ),
    "1.2": (
        {"version": "1.2", "status": "completed", "server_list": [
            {"server_id": "node_0", "host_ip": "10.0.0.7", "device": [device(0, 0)]}]},
        ("10.0.0.7",), (0,),
    ),
    "instances with ranks": (
        {"board_id": "0x002f", "chip_info": "910", "deploy_mode": "lab", "group_count": "1", "group_list": [
            {"device_num": "2", "server_num": "1", "group_name": "", "instance_count": "2", "instance_list": [
                {"devices": [device(1)], "rank_id": "1", "server_id": "10.0.0.9"},
                {"devices": [device(0)], "rank_id": "0", "server_id": "10.0.0.9"}]}],
            "para_plane_nic_location": "device", "para_plane_nic_name": ["eth0", "eth1"], "para_plane_nic_num": "2",
            "status": "completed"},
        ("10.0.0.9", "10.0.0.9"), (0, 1),
    ),
    "pods": (
        pods({"pod_name": "b", "server_id": "10.0.0.4", "devices": [device(0), device(1)]},
             {"pod_name": "a", "server_id": "10.0.0.3", "devices": [device(7)]}),
        ("10.0.0.4", "10.0.0.4", "10.0.0.3"), (0, 1, 7),
    ),
}  # fmt: skip


def written(folder, table):
    path = folder / "table.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return str(path)


@pytest.mark.parametrize("name", TABLES)
def test_rank_tables_of_both_layouts(tmp_path, name):
    table, hosts, devices = TABLES[name]
    assert rank_table.read(written(tmp_path, table), "--t") == rank_table.RankTable(hosts, devices)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "expected a rank table"),
        ({"status": "initializing", "server_list": []}, "its status is 'initializing', expected 'completed'"),
        ({"server_list": []}, "expected the ranks 0, 1, 2, ..., each once, got none"),
        ({"server_list": [{"server_id": "a", "device": [device(0, 1)]}]}, "each once, got 1"),
        ({"server_list": [{"server_id": "a", "device": [device(0)]}]}, "expected a whole number as 'rank_id' in"),
        ({"server_list": [{"device": [device(0, 0)]}]}, "a server has no 'server_id'"),
        ({"server_list": [{"server_id": "a"}]}, "expected a list of objects as 'device'"),
        (pods({"server_id": "a", "rank_id": "0", "devices": [device(0), device(1)]}), "rank 0 has 2 devices"),
    ],
)
def test_a_broken_rank_table_names_its_file(tmp_path, table, words):
    path = written(tmp_path, table)
    with pytest.raises(ConfigError) as caught:
        description.job({"RANK_TABLE_FILE": path})
    assert "RANK_TABLE_FILE: '%s'" % path in str(caught.value)
    assert words in str(caught.value)


def test_a_rank_table_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"RANK_TABLE_FILE: '/not/here' cannot be read: No such file"):
        description.job({"RANK_TABLE_FILE": "/not/here", "RANK_SIZE": "2", "RANK_ID": "0"})
    assert description.job({"RANK_TABLE_FILE": "/not/here", "RANK_SIZE": "1"}).size == 1  # as the vendor's scripts do


def test_a_rank_table_that_changes_is_read_again(tmp_path):
    path = written(tmp_path, TABLES["1.0"][0])
    assert description.job({"RANK_TABLE_FILE": path}).size == 3
    written(tmp_path, TABLES["1.2"][0])
    os.utime(path, ns=(1, 1))
    assert description.job({"RANK_TABLE_FILE": path}).size == 1


def test_the_device_says_the_rank_where_a_table_has_one_machine(tmp_path):
    path = written(tmp_path, TABLES["instances with ranks"][0])
    assert description.job({"RANK_TABLE_FILE": path, "DEVICE_ID": "1"}).rank == 1
    assert description.job({"RANK_TABLE_FILE": path, "DEVICE_ID": "1", "RANK_ID": "0"}).rank == 0
    path = written(tmp_path, TABLES["1.0"][0])
    assert description.job({"RANK_TABLE_FILE": path, "DEVICE_ID": "0"}).rank is None


# environment -> (size, rank, addresses)
DESCRIBED = [
    ({}, 1, None, ["localhost:28700"]),
    ({"RANK_SIZE": "2", "RANK_ID": "1"}, 2, 1, ["localhost:28700", "localhost:28701"]),
    ({"TF_CONFIG": json.dumps(TWO_WORKERS)}, 2, 1, ["a:1", "b:2"]),
    ({"TF_CONFIG": json.dumps(CHIEF_AND_WORKERS)}, 3, 1, ["c:9", "a:1", "b:2"]),
    (OPENMPI, 2, 1, ["localhost:28700", "localhost:28701"]),
    (SLURM, 4, 3, ["n01:28700", "n01:28701", "n02:28702", "n02:28703"]),
    (CYCLIC, 4, 3, ["n01:28700", "n02:28701", "n01:28702", "n02:28703"]),
    ({**SLURM, "SLURM_TASKS_PER_NODE": "3,1", "NPU_SHIM_PORT": "5"}, 4, 3, ["n01:5", "n01:6", "n01:7", "n02:8"]),
    # what is no job of ours
    ({"TF_CONFIG": json.dumps(SERVERS)}, 1, None, ["localhost:28700"]),
    ({"TF_CONFIG": json.dumps(EVALUATOR)}, 1, None, ["localhost:28700"]),
    ({"TF_CONFIG": "{}"}, 1, None, ["localhost:28700"]),
    ({**SLURM, "ENVIRONMENT": "BATCH"}, 1, None, ["localhost:28700"]),
    # which one counts
    ({**SLURM, **OPENMPI, "RANK_SIZE": "1"}, 1, None, ["localhost:28700"]),
    ({**SLURM, **OPENMPI, "TF_CONFIG": json.dumps(CHIEF_AND_WORKERS)}, 3, 1, ["c:9", "a:1", "b:2"]),
    ({**SLURM, **OPENMPI}, 2, 1, ["localhost:28700", "localhost:28701"]),
    ({**SLURM, "TF_CONFIG": json.dumps(SERVERS)}, 4, 3, ["n01:28700", "n01:28701", "n02:28702", "n02:28703"]),
    ({**SLURM, "NPU_SHIM_HOSTS": "w:1,x:2,y:3,z"}, 4, 3, ["w:1", "x:2", "y:3", "z:28703"]),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "size", "rank", "addresses"), DESCRIBED)
def test_sources_and_their_order(environment, size, rank, addresses):
    job = description.job(environment)
    assert (job.size, job.rank) == (size, rank)
    assert description.addresses(environment) == addresses


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG in the environment is not JSON"),
        ({"TF_CONFIG": "[1]"}, "TF_CONFIG in the environment: expected a JSON object"),
        ({"TF_CONFIG": json.dumps(THIRD)}, '"index": 2} is none of its'),
        ({"TF_CONFIG": json.dumps({"cluster": {"worker": ["a", "b"]}})}, "task {} is none of its cluster"),
        ({"TF_CONFIG": json.dumps({"cluster": {"worker": "a:1"}})}, 'TF_CONFIG: expected {"cluster": {"worker"'),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2 needs OMPI_COMM_WORLD_RANK"),
        ({**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "does not say where the other machines are; set NPU"),
        ({**SLURM, "SLURM_JOB_NODELIST": "n[1-"}, "SLURM_JOB_NODELIST='n[1-' in the environment is not a host list"),
        ({**SLURM, "SLURM_JOB_NODELIST": "n[3-1]"}, "SLURM_JOB_NODELIST in the environment has '[3-1]'"),
        ({**SLURM, "SLURM_JOB_NODELIST": ""}, "SLURM_PROCID=3 of 4 tasks needs SLURM_JOB_NODELIST"),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "2(x"}, "SLURM_TASKS_PER_NODE='2(x' in the environment"),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "2"}, "which task is on which node cannot be told; set NPU_SHIM_HOSTS"),
        ({**SLURM, "SLURM_NODEID": "0"}, "which task is on which node cannot be told; set NPU_SHIM_HOSTS"),
        ({**SLURM, "SLURM_PROCID": "x"}, "SLURM_PROCID='x' in the environment is not a whole number"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(environment, words):
    with pytest.raises(ConfigError) as caught:
        description.job(environment)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("one", ["one"]),
        ("a,b.c", ["a", "b.c"]),
        ("n[01-03,7],x", ["n01", "n02", "n03", "n7", "x"]),
        ("r[1-2]n[08-10]-ib0", ["r%dn%s-ib0" % (r, n) for r in (1, 2) for n in ("08", "09", "10")]),
        ("tux[99-101]", ["tux99", "tux100", "tux101"]),
    ],
)
def test_lists_of_hosts_in_brackets(text, hosts):
    assert description.expanded("LIST", text) == hosts


def test_addresses_of_every_form():
    assert [description.host_of(address) for address in ("a:1", "a", "[::1]:5", "::1", "10.0.0.1:2")] == [
        "a", "a", "[::1]", "::1", "10.0.0.1",
    ]  # fmt: skip


@pytest.fixture
def clean(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("RANK", "CM_", "SLURM", "OMPI", "NPU_SHIM", "DEVICE", "ASCEND", "LOCAL_RANK", "TF_CONFIG")):
            monkeypatch.delenv(name)
    for name in ("RANK_SIZE", "RANK_ID", "NPU_SHIM_HOSTS", "LOCAL_RANK_SIZE", "DEVICE_ID"):  # what `export` writes
        monkeypatch.setenv(name, "")
    return monkeypatch


def test_a_schedulers_job_is_written_as_the_vendors_variables(clean):
    for name, value in SLURM.items():
        clean.setenv(name, value)
    ranks.export()
    names = ("RANK_SIZE", "RANK_ID", "DEVICE_ID", "LOCAL_RANK_SIZE", "NPU_SHIM_HOSTS")
    assert [os.environ[name] for name in names] == ["4", "3", "1", "2", "n01:28700,n01:28701,n02:28702,n02:28703"]
    described = description.job(os.environ)
    assert (described.source, described.rank) == ("RANK_SIZE", 3)  # the same job again, by the variables
    assert (ranks.get_local_rank_id(), ranks.get_local_rank_size()) == (1, 2)


def test_one_process_writes_nothing(clean):
    before = dict(os.environ)
    ranks.export()
    clean.setenv("RANK_SIZE", "1")
    ranks.export()
    assert {**dict(os.environ), "RANK_SIZE": ""} == before


def test_hosts_say_who_shares_a_machine(clean):
    clean.setenv("RANK_SIZE", "3")
    clean.setenv("RANK_ID", "2")
    clean.setenv("NPU_SHIM_HOSTS", "a:1,b:1,b:2")
    assert (ranks.get_local_rank_id(), ranks.get_local_rank_size()) == (1, 2)


def test_a_size_without_a_rank_is_no_job(clean):
    clean.setenv("RANK_SIZE", "2")
    with pytest.raises(ConfigError, match="RANK_SIZE=2 needs RANK_ID, this process's number from 0 to 1"):
        ranks.world_rank()
