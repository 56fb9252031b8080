"""npu-shim launch without TensorFlow: lines of output, ports and devices, workers that end in every way."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import other_processes
import pytest

from npu_shim import cli
from npu_shim.cli.scripts import launch
from npu_shim.distributed.launcher import layout, lines, workers
from npu_shim.rewriter.errors import ConfigError

# a launch whose workers run the Python code of their rank: no `npu-shim run`, no TensorFlow
DRIVER = """
import json, os, sys
from npu_shim.distributed.launcher import workers
workers.CODE = workers.CODE.replace("sys.exit(cli.main(sys.argv[3:]))", "exec(sys.argv[3])")
grace, codes = json.loads(sys.argv[1])
made = [workers.Worker("rank %d" % rank, "host:%d" % rank, [code], os.environ) for rank, code in enumerate(codes)]
failure = workers.run(made, grace)
if failure is not None:
    print("FAILED", failure.worker.name[len("rank "):], failure.how(), json.dumps(failure.lines))
"""
FOREVER = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER
WITH_CHILD = """
import os, subprocess, sys
made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), made.pid, flush=True)
made.wait()
"""


@contextlib.contextmanager
def driven(*codes, grace=10):
    """A launch in a process of its own, which takes SIGHUP even if these tests run under nohup."""
    argv = [sys.executable, "-c", DRIVER, json.dumps([grace, codes])]
    takes = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # noqa: E731
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=takes) as process:
        try:
            yield process
        finally:
            process.kill()


def outcome(*codes, grace=10):
    with driven(*codes, grace=grace) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


# pieces of a stream, one each 0.1 s -> lines
STREAMS = [
    ([b"a\nb\n"], [b"a", b"b"]),
    ([b"a", b"b", b"\n"], [b"ab"]),
    ([b"a\r", b"\nb\r\n"], [b"a", b"b"]),
    ([b"\n\n"], [b"", b""]),
    ([b"no end"], [b"no end"]),
    ([b"no end\r"], [b"no end"]),
    ([b"\x00\xff\xfe\n\x1b[0m"], [b"\x00\xff\xfe", b"\x1b[0m"]),
    ([b"\r 1%", b"\r 2%", b"\r 3%", b"\r100%\n", b"done\n"], [b" 1%", b"100%", b"done"]),  # a bar: its first and last
    ([b"1\r", b"2\r", *[b"3\r"] * 20, b"4\r"], [b"1", b"3", b"3", b"4"]),  # and each second one between
    ([b"x" * lines.LONGEST, b"y", b"\n"], [b"x" * lines.LONGEST, b"y"]),
    ([], []),
]


@pytest.mark.parametrize(("pieces", "wanted"), STREAMS)
def test_a_stream_becomes_lines(pieces, wanted):
    actual = []
    stream = lines.Lines(actual.append)
    for number, piece in enumerate(pieces):
        stream.feed(piece, 0.1 * number)
    stream.end()
    assert actual == wanted


def test_a_bar_that_stands_still_is_seen():
    shown = []
    stream = lines.Lines(shown.append)
    stream.feed(b"1\r2\r3\r", 0.0)
    stream.feed(b"4\r5", 0.1)
    stream.tick(0.2)
    assert shown == [b"2"]  # whether 3 is overwritten was not known then
    stream.tick(5.0)
    assert shown == [b"2", b"4"]


def test_output_keeps_its_streams_and_says_whose_it_is():
    code = "import sys\nsys.stdout.write('out ')\nprint('%d')\nsys.stderr.buffer.write(b'\\xff\\x00err')"
    status, out, err = outcome(code % 0, code % 1)
    assert status == 0
    assert sorted(out.splitlines()) == [b"[rank 0] out 0", b"[rank 1] out 1"]
    assert sorted(err.splitlines()) == [b"[rank 0] \xff\x00err", b"[rank 1] \xff\x00err"]


def test_lines_of_workers_do_not_mix():
    code = "for _ in range(300): print(%r * 300)"
    _, out, _ = outcome(code % "a", code % "b")
    assert sorted(set(out.splitlines())) == [b"[rank 0] " + b"a" * 300, b"[rank 1] " + b"b" * 300]
    assert len(out.splitlines()) == 600


def test_the_first_failure_ends_all_and_is_named():
    begin = time.monotonic()
    _, out, _ = outcome(FOREVER, "import time\nprint('last words')\ntime.sleep(0.3)\nraise SystemExit(7)", FOREVER)
    assert out.splitlines()[-1] == b'FAILED 1 exit status 7 ["last words"]'
    assert time.monotonic() - begin < 9  # nobody waits out the grace


def test_a_worker_that_ends_early_and_well_ends_nobody():
    _, out, _ = outcome("print('early')", "import time\ntime.sleep(0.5)\nprint('late')")
    assert sorted(out.splitlines()) == [b"[rank 0] early", b"[rank 1] late"]


def test_what_does_not_end_is_killed():
    """A worker that ignores SIGTERM, and one that is stopped."""
    stopped = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n" + FOREVER
    begin = time.monotonic()
    _, out, _ = outcome(DEAF, "import time, os\ntime.sleep(1)\nos.kill(os.getpid(), 9)", stopped, grace=0.5)
    assert out.splitlines()[-1].startswith(b"FAILED 1 killed by signal 9 (SIGKILL)")
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_handed_on(number):
    """Each worker ends in its own way, and takes its time: nothing is killed in between."""
    code = "import signal, time\n"
    code += "def handler(number, _):\n    time.sleep(%g)\n    print('got', number)\n    raise SystemExit(%d)\n"
    code += "signal.signal(%d, handler)\n" % number + FOREVER
    with driven(code % (0, 3), code % (0.5, 0)) as process:
        assert [process.stdout.readline()[9:] for _ in "ab"] == [b"ready\n"] * 2
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    if number == signal.SIGUSR1:  # no end: the second worker is ended as the first one fails
        assert b"[rank 0] got %d" % number in out
    else:
        assert sorted(out.splitlines()[:2]) == [b"[rank 0] got %d" % number, b"[rank 1] got %d" % number]
    assert b"FAILED 0 exit status 3" in out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_behind(number):
    """Neither workers nor what they have started, also where launch itself is killed."""
    with driven(WITH_CHILD, WITH_CHILD) as process:
        pids = [int(word) for _ in "ab" for word in process.stdout.readline().split()[2:]]
        assert len(pids) == 4
        assert all(map(other_processes.lives, pids))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert all(map(other_processes.ends, pids))


def test_an_ignored_hangup_stays_ignored():
    """As under nohup."""
    code = "import signal\nprint(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    argv = ["nohup", sys.executable, "-c", DRIVER, json.dumps([1, [code]])]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
    assert done.stdout == b"[rank 0] True\n"


def test_what_launch_prints_into_goes_away():
    talk = "import time\nwhile True: print('x' * 100, flush=True); time.sleep(0.001)"
    with driven("import os\nprint(os.getpid(), flush=True)\n" + talk) as process:
        pid = int(process.stdout.readline().split()[-1])
        process.stdout.close()
        process.stderr.read()
        assert process.wait(60)
    assert other_processes.ends(pid)


# -- who is where


def test_hosts_share_the_workers():
    assert layout.places(3, ["a"]) == [(0, "a", 0), (1, "a", 1), (2, "a", 2)]
    assert layout.places(3, ["a", "b"]) == [(0, "a", 0), (1, "a", 1), (2, "b", 0)]


def test_free_ports_differ():
    ports = layout.free_ports(20)
    assert len(set(ports)) == 20
    assert all(map(layout.is_free, ports))


@pytest.mark.parametrize(
    ("visible", "gpus"), [("", []), ("-1", []), ("2,5", ["2", "5"]), ("GPU-8932f937", ["GPU-8932f937"])]
)
def test_gpus_are_what_the_environment_shows(visible, gpus):
    assert layout.visible_gpus({"CUDA_VISIBLE_DEVICES": visible}) == gpus


def test_a_worker_is_told_who_it_is():
    places = layout.places(3, ["a", "b"])
    base = {"CM_WORKER_SIZE": "8", "RANK_ID": "5", "HOME": "/root", "PYTHONUNBUFFERED": ""}
    told = layout.environment_of(places[2], places, [7, 8, 9], ["4", "6"], base)
    assert told == {
        "RANK_SIZE": "3", "RANK_ID": "2", "DEVICE_ID": "0", "ASCEND_DEVICE_ID": "0", "DEVICE_INDEX": "2",
        "LOCAL_RANK_SIZE": "1", "NPU_SHIM_HOSTS": "a:7,a:8,b:9", "CUDA_VISIBLE_DEVICES": "4", "HOME": "/root",
        "PYTHONUNBUFFERED": "",
    }  # fmt: skip


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """Function that runs `npu-shim launch` in tmp_path, where script.py is; returns the workers it would start."""
    seen = []
    monkeypatch.setattr(workers, "run", lambda started, grace: seen.append((started, grace)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("NPU_SHIM_PORT", "41000")
    monkeypatch.delenv("RANK_TABLE_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("")

    def run(*argv):
        assert cli.main(["launch", *argv]) == 0
        return seen.pop()

    return run


def test_one_host(launched):
    words = ("--engine=session", "--calibrate", "3", "--set", "graph_run_mode=1", "--set=hcom_parallel=true")
    script = ["script.py", "-n", "x"]
    started, grace = launched("-n", "2", *words, *script)
    assert grace == 10
    assert [process.arguments for process in started] == [
        ["run", "--engine=session", "--calibrate=3", "--set=graph_run_mode=1", "--set=hcom_parallel=true", *script],
        ["run", "--engine=session", "--set=graph_run_mode=1", "--set=hcom_parallel=true", *script],  # rank 0 measures
    ]
    addresses = started[0].environment["NPU_SHIM_HOSTS"].split(",")
    assert [process.place for process in started] == addresses
    assert all(address.startswith("localhost:") for address in addresses)


def test_this_hosts_share(launched):
    started, _ = launched("-n", "4", "--hosts", "a,b", "--host-index", "1", "--grace", "0.5", "-m", "mod")
    assert [process.name for process in started] == ["rank 2", "rank 3"]
    assert [process.environment["DEVICE_ID"] for process in started] == ["0", "1"]
    assert started[0].environment["NPU_SHIM_HOSTS"] == "a:41000,a:41001,b:41002,b:41003"
    assert started[0].arguments == ["run", "-m", "mod"]


def test_a_rank_table_says_how_many(launched, monkeypatch, tmp_path):
    devices = [[{"device_id": "0", "rank_id": rank}] for rank in "01"]
    servers = [{"server_id": host, "device": device} for host, device in zip("ab", devices)]
    (tmp_path / "table.json").write_text(json.dumps({"server_list": servers}))
    monkeypatch.setenv("RANK_TABLE_FILE", "table.json")
    started, _ = launched("--host-index", "1", "script.py")
    assert [(process.name, process.place) for process in started] == [("rank 1", "b:41001")]


def test_one_worker_for_each_gpu(launched, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    started, _ = launched("script.py")
    assert [process.environment["CUDA_VISIBLE_DEVICES"] for process in started] == ["3", "5"]


@pytest.mark.parametrize(("words", "cards", "told"), [
    (["-n", "2", "--devices", "2"], ["0,1", "2,3"], "--devices=2"),
    (["-n", "2", "--devices=all"], ["0,1", "2,3"], "--devices=2"),
    (["--devices", "2"], ["0,1", "2,3"], "--devices=2"),
    (["--devices", "all"], ["0,1,2,3"], "--devices=4"),
    (["-n", "3", "--devices", "all"], ["0", "1", "2"], "--devices=1"),
])  # fmt: skip
def test_each_worker_has_several_cards(launched, monkeypatch, words, cards, told):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    started, _ = launched(*words, "script.py")
    assert [process.environment["CUDA_VISIBLE_DEVICES"] for process in started] == cards
    assert all(process.arguments == ["run", told, "script.py"] for process in started)


def test_each_worker_has_several_cards_by_the_environment(launched, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("NPU_SHIM_DEVICES", "all")
    started, _ = launched("-n", "2", "script.py")
    assert [process.arguments for process in started] == [["run", "--devices=2", "script.py"]] * 2
    monkeypatch.setenv("NPU_SHIM_DEVICES", "3")
    assert cli.main(["launch", "-n", "2", "script.py"]) == 2
    assert "2 workers with 3 devices each on this host, which has 4 GPUs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "npu-shim launch needs a SCRIPT, or -m MODULE"),
        (["-n", "2"], "npu-shim launch needs a SCRIPT, or -m MODULE"),
        (["-n", "2", "-m"], "npu-shim launch needs a SCRIPT, or -m MODULE"),
        (["-n"], "-n needs a number of workers"),
        (["script.py"], "npu-shim launch needs -n N, a number of workers"),
        (["-n", "0", "script.py"], "-n is '0', expected a number of workers, 1 or more"),
        (["-n", "two", "script.py"], "-n is 'two', expected a number of workers"),
        (["-n", "2", "none.py"], "script 'none.py' cannot be read: No such file or directory"),
        (["-n", "2", "."], "script '.' cannot be read: Is a directory"),
        (["-n", "2", "-"], "several workers cannot read one standard input"),
        (["-n", "2", "--host", "a", "script.py"], "npu-shim launch has no option '--host' (did you mean '--hosts'?)"),
        (["-n", "2", "--hosts", "a,b", "script.py"], "2 hosts (a,b) need --host-index, this host's number in --hosts"),
        (["-n", "2", "--hosts", "a,", "script.py"], "--hosts is 'a,', expected the names of the hosts"),
        (["-n", "2", "--hosts", "a,a", "script.py"], "--hosts a,a: each host must be there once"),
        (["-n", "1", "--hosts", "a,b", "script.py"], "-n 1: fewer workers than the 2 hosts"),
        (["-n", "2", "--hosts", "a,b", "--host-index", "2", "script.py"], "--host-index is '2', expected a number"),
        (["-n", "2", "--port", "x", "script.py"], "--port is 'x', expected the number of a port"),
        (["-n", "2", "--port", "65535", "script.py"], "--port: the ports 65535 to 65536 are not all below 65536"),
        (["-n", "2", "--grace", "-1", "script.py"], "--grace is '-1', expected a number of seconds"),
        (["-n", "2", "--engine", "x", "script.py"], "--engine is 'x', expected one of auto, session, pjrt"),
        (["-n", "2", "--set", "iterations_per_lop=2", "script.py"], "did you mean 'iterations_per_loop'"),
        (["-n", "2", "--report", "x.txt", "script.py"], "--report is 'x.txt', expected a file name"),
    ],
)
def test_wrong_input_is_said_once_before_anything_starts(launched, capsys, words, said):
    try:
        status = cli.main(["launch", *words])
    except SystemExit as end:  # argparse's
        status = end.code
    assert status == 2
    assert said in capsys.readouterr().err


def test_more_workers_than_gpus(launched, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert cli.main(["launch", "-n", "2", "script.py"]) == 2
    assert "2 workers on this host, which has 1 GPUs; with CUDA_VISIBLE_DEVICES=-1" in capsys.readouterr().err


def test_a_port_that_is_taken(launched, monkeypatch):
    monkeypatch.setattr(layout, "is_free", lambda port: port != 41001)
    with pytest.raises(ConfigError, match="port 41001 of this host is taken; --port has others"):
        launch.main(["-n", "2", "--port", "41000", "script.py"])


@pytest.mark.parametrize(("status", "wanted"), [(7, 7), (-9, 137), (-15, 143)])
def test_the_status_is_that_of_the_first_failure(launched, monkeypatch, capsys, status, wanted):
    first = lambda started, grace: workers.Failure(started[1], status, ["last", "words"])  # noqa: E731
    monkeypatch.setattr(workers, "run", first)
    assert cli.main(["launch", "-n", "2", "script.py"]) == wanted
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("npu-shim: rank 1 (localhost:")
    assert said[1:] == ["npu-shim:   [rank 1] last", "npu-shim:   [rank 1] words"]
