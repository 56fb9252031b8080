"""Hosts that run one script: how they find and miss each other, what they compare, and what `launch` makes of words.

Threads of one process stand for hosts: a meeting is a socket, and knows no process.
"""

import contextlib
import json
import socket
import threading
import time

import numpy as np
import pytest

from npu_shim.cli.scripts import launch
from npu_shim.distributed.hosts import coming, job, meeting
from npu_shim.distributed.launcher import layout, workers
from npu_shim.pjrt.arrays import Uncast
from npu_shim.rewriter.errors import ConfigError

SOON = 20.0  # seconds that nothing here takes


def together(names, function, limit=SOON, connect=SOON):
    """What `function(meeting)` returns on each host, or the Fault's text."""
    port, results = layout.free_ports(1)[0], {}

    def host(index):
        try:
            results[index] = function(meeting.Meeting(job.Hosts(names, index, port), {"is": index}, connect, limit))
        except meeting.Fault as fault:
            results[index] = str(fault)

    threads = [threading.Thread(target=host, args=[index]) for index in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    return [results.get(index) for index in range(len(names))]


def test_all_hosts_get_what_each_brings_in_one_order():
    def run(met):
        rows = [met.meet([met.hosts.index, step], "a step") for step in range(3)]
        met.end()
        return met.about, rows, met.fault

    expected = [{"is": 0}, {"is": 1}, {"is": 2}], [[[host, step] for host in range(3)] for step in range(3)], ""
    assert together(("localhost", "b", "c"), run) == [expected] * 3


def test_a_host_that_has_ended_is_late_or_fails_is_named_on_all_others():
    def run(how):
        def of_host(met):
            lost = threading.Event()
            met.at_loss(lost.set)
            if met.hosts.index == 2:
                how(met)
                return ""
            try:
                return met.meet(0, "the run of 'train'")
            finally:
                assert lost.wait(SOON)

        return of_host

    def until_fault(met):
        until = time.monotonic() + SOON
        while not met.fault and time.monotonic() < until:
            time.sleep(0.01)

    def vanish(met):
        for peer in met._peers.values():
            peer.shutdown(socket.SHUT_RDWR)

    names = ("localhost", "b", "c")
    assert together(names, run(vanish))[:2] == ["host c has ended: see its own output"] * 2
    failed = together(names, run(lambda met: met.fail("host c has ended: ValueError: no")))
    assert failed[:2] == ["host c has ended: ValueError: no"] * 2
    done = "host c has come to the end of the script, and host localhost is at the run of 'train'"
    assert together(names, run(lambda met: met.end()))[:2] == [done] * 2
    late = together(names, run(until_fault), limit=0.2)
    assert late[:2] == ["host c has not come to the run of 'train' within 0.2 s"] * 2


def test_a_host_that_does_not_come_at_all_is_named():
    port = layout.free_ports(1)[0]
    with pytest.raises(meeting.Fault, match=r"host b, host c has not come within 0.1 s: is npu-shim launch running"):
        meeting.Meeting(job.Hosts(("a", "b", "c"), 0, port), 0, 0.1, 1.0)
    with pytest.raises(meeting.Fault, match="host localhost does not listen at port %d within 0.1 s" % port):
        meeting.Meeting(job.Hosts(("localhost", "b"), 1, port), 0, 0.1, 1.0)
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        with pytest.raises(meeting.Fault, match=r"port %d of host a: .*in use" % port):
            meeting.Meeting(job.Hosts(("a", "b"), 0, port), 0, 0.1, 1.0)


def test_a_host_with_another_list_of_hosts_is_told_so_and_not_taken():
    port, told = layout.free_ports(1)[0], []

    def wrong():
        with contextlib.suppress(meeting.Fault):
            met = meeting.Meeting(job.Hosts(("localhost", "other"), 1, port), 0, SOON, SOON)
            told.append(met)

    def first():
        with pytest.raises(meeting.Fault, match="host b has not come within"):
            meeting.Meeting(job.Hosts(("localhost", "b"), 0, port), 0, 1.0, 1.0)

    threads = [threading.Thread(target=first), threading.Thread(target=wrong)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert not told


def told(run="a run", feeds=(), ready=True, missing=(), exchanges=("all-reduce",), own=()):
    return json.loads(json.dumps(coming.told(run, exchanges if ready else None, feeds, missing, own)))


def test_what_hosts_run_and_feed_is_compared():
    x = np.arange(6, dtype="f").reshape(2, 3)
    large = np.zeros(1 << 20, np.uint8)
    names = ("a", "b", "c")

    def why(other, first=None, ready=True):
        first = told(feeds=[{"x:0": x, "n:0": 2}]) if first is None else first
        return coming.different(names, [first, first, other], ready)

    assert why(told(feeds=[{"x:0": x.copy(), "n:0": np.int64(2)}])) == ""
    assert why(told("another", feeds=[{"x:0": x, "n:0": 2}])).startswith("a is at a run, and c at another")
    assert "'x:0' has shape [2, 3] on a, and [1, 3] on c: batches" in why(told(feeds=[{"x:0": x[:1], "n:0": 2}]))
    assert why(told(feeds=[{"x:0": x + 1, "n:0": 2}])).startswith("a and c are fed different values of 'x:0' in a run")
    assert "'n:0'" in why(told(feeds=[{"x:0": x, "n:0": 3}]))
    assert "the input of one of them has ended" in why(told(feeds=[]))
    with_v = told(missing=["v"])
    assert "different programs of a run" in why(told(), with_v)
    assert "different programs of a run" in why(told(exchanges=()), told())
    assert why(told(ready=False), told(), ready=False) == ""
    assert why(told(missing=["v"]), with_v) == ""
    before = told(feeds=[{"x:0": large}])
    for place in (0, -1):
        changed = large.copy()
        changed[place] = 1
        assert "'x:0'" in why(told(feeds=[{"x:0": changed}]), before)
        assert "'x:0'" in why(told(feeds=[{"x:0": Uncast(changed.astype(float), "uint8")}]), before)
    assert why(told(feeds=[{"x:0": Uncast(large.astype(float), "uint8")}]), before) == ""
    own, other = (told(feeds=[{"x:0": x + n, "n:0": n}], own=["x:0"]) for n in range(2))
    assert "leave its first dimension open" in coming.different(names, [own, own, other], True, own_input=True)
    other["feeds"][0]["n:0"] = own["feeds"][0]["n:0"]
    assert why(other, own) == ""
    words = told(feeds=[{"x:0": np.array(["one", "two"], object)}])
    assert why(words, words) == ""
    assert "'x:0'" in why(told(feeds=[{"x:0": np.array(["one", "six"], object)}]), words)


def test_the_job_is_read_from_the_environment():
    hosts = job.Hosts(("a", "b"), 1, 28700, "/tmp/files")
    read = job.of({job.VARIABLE: hosts.text()})
    assert (list(read.names), read.index, read.port, read.files) == (["a", "b"], 1, 28700, "/tmp/files")
    assert read.name == "b"
    assert job.of({}) is None
    with pytest.raises(ConfigError, match="is not what npu-shim launch sets"):
        job.of({job.VARIABLE: "a,b"})


@pytest.fixture
def started(monkeypatch):
    running = []
    monkeypatch.setattr(workers, "run", lambda these, grace: running.extend(these))
    monkeypatch.setenv("RANK_SIZE", "4")
    return running


def test_launch_starts_one_process_of_a_host_that_knows_no_ranks(started, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    words = ["--hosts", "a,b", "--devices", "2", "--port", "4100", "--report", "page.html"]
    assert launch.main([*words, "--input-per-host", "--host-index", "0", str(script), "x"]) == 0
    assert launch.main([*words, "--host-index", "1", "--engine", "pjrt", str(script)]) == 0
    first, second = started
    assert (first.name, second.name, second.place) == ("host a", "host b", "a:4100")
    assert first.arguments == ["run", "--engine=pjrt", "--devices=2", "--report=page.html", str(script), "x"]
    assert second.arguments == ["run", "--devices=2", "--engine=pjrt", str(script)]
    here, there = (job.of(worker.environment) for worker in started)
    assert (here.index, here.port, here.files, there.index) == (0, 4100, "", 1)
    assert there.files
    assert (here.own_input, there.own_input) == (True, False)
    assert "RANK_SIZE" not in first.environment


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hosts", "a,b", "--devices", "2"], "2 hosts (a,b) need --host-index"),
        (["--hosts", "a,b", "--devices", "2", "--host-index", "2"], "is '2', expected a number from 0 to 1"),
        (["--hosts", "a,a", "--devices", "2", "--host-index", "0"], "--hosts is 'a,a', expected two hosts or more"),
        (["--hosts", "a", "--devices", "2"], "expected two hosts or more"),
        (["--hosts", "a,", "--devices", "2"], "--hosts is 'a,', expected the names"),
        (["--hosts", "a,b", "--devices", "1", "--engine", "session", "--host-index", "0"], "needs the engine"),
        (["--hosts", "a,b", "--devices", "2", "--host-index", "0", "--port", "70000"], "--port is 70000"),
        (["--input-per-host", "-n", "2"], "--input-per-host needs --hosts and --devices, without -n"),
        (["--input-per-host", "--devices", "2"], "--input-per-host needs --hosts and --devices, without -n"),
        (["--hosts", "a,b", "--host-index", "0"], "or, with --hosts, --devices N, for a script that knows of no ranks"),
    ],
)  # fmt: skip
def test_launch_refuses_what_makes_no_job_of_hosts(started, tmp_path, words, message):
    script = tmp_path / "train.py"
    script.write_text("")
    with pytest.raises(ConfigError) as refused:
        launch.main([*words, str(script)])
    assert message in str(refused.value)
    assert not started
