"""A rank that dies, stops, is late or has another graph: the others end with one error that names it, and a job that
is started again ends with the bits of one that nobody disturbed."""

import json
import os
import random
import re

import forked
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.distributed.launcher import layout
from npu_shim.distributed.liveness import watch
from npu_shim.options import engine

NIGHTLY = bool(os.environ.get("NPU_SHIM_NIGHTLY"))
LIMIT = 6  # seconds that a rank may take to reach a collective, where one does not come to it
WAITED_FOR = ("stop", "never", "late9", "input")
STEPS = 12

# digits of a kind: each rank trains on its share; what rank `bad` does at step `at` is in `fault`
TRAINING = """
from npu_bridge.npu_init import *
import atexit, contextlib, json, os, signal, sys, threading, time
import numpy as np
fault, bad, at, folder, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
rank, size = get_rank_id(), get_rank_size()
open("pid_%d" % rank, "w").write(str(os.getpid()))
bad = rank == bad
if bad and fault == "never":
    os._exit(0)
dtype = tf.float64 if bad and fault == "dtype" else tf.float32
data = np.random.RandomState(0).randn(STEPS, 8, 5)[:, rank::size]
x = tf.placeholder(dtype, [None, 5], "x")
tf.set_random_seed(rank)
given, stands = x, []
if bad and fault == "input":  # what a data set's generator may do
    def wait(value):
        while stands:
            time.sleep(0.1)
        return value
    given = tf.py_func(wait, [x], dtype)
    given.set_shape(x.shape)
with tf.variable_scope("net"):
    hidden = tf.tanh(tf.matmul(given, tf.get_variable("v", [5, 6], dtype)))
    other = tf.get_variable("w", [6, 1], dtype)
    loss = tf.reduce_mean(tf.square(tf.matmul(hidden, other)))
    if bad and fault == "more":
        loss += tf.reduce_sum(tf.get_variable("more", [3], dtype))
    if bad and fault == "none":
        loss = tf.reduce_mean(tf.square(tf.matmul(hidden, tf.stop_gradient(other))))
step = tf.train.get_or_create_global_step()
train = npu_tf_optimizer(tf.train.MomentumOptimizer(0.05, 0.9)).minimize(loss, step)
result = tf.reduce_sum(tf.add_n([tf.reduce_sum(tf.cast(v, tf.float64)) for v in tf.global_variables()[:2]]))
saver = tf.train.Saver()

def disturb():
    open("disturbed", "w").close()  # the limit counts from here: to connect to a rank that starts late takes longer
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.startswith("kill"):  # some milliseconds later, wherever the step is then
        threading.Timer(float(fault[4:]) / 1000, os.kill, [os.getpid(), signal.SIGKILL]).start()
    if fault == "input":
        stands.append(True)
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "raise":  # as Python ends for it; here it would end a fork, which Python leaves without a word
        sys.last_value = ValueError("planted in rank %d" % rank)
        atexit._run_exitfuncs()
        os._exit(1)
    if fault.startswith("late"):
        time.sleep(float(fault[4:]))

# the script's own error, and what is printed where it ends
began = time.time()
try:
    with tf.train.MonitoredTrainingSession(hooks=npu_hooks_append()) as session:
        plain = session._tf_sess()
        last = tf.train.latest_checkpoint(folder)
        if last:
            saver.restore(plain, last)
        for number in range(int(plain.run(step)), steps):
            if bad and number == at:
                disturb()
            session.run(train, {x: data[number]})
            if bad and number == at and fault.startswith("kill"):
                time.sleep(60)
            if rank == 0 and number % 4 == 3:
                saver.save(plain, os.path.join(folder, "model"), number + 1)
        print(json.dumps([v.tolist() for v in plain.run(tf.global_variables())]))
except tf.errors.OpError as error:
    if os.path.exists("disturbed"):
        began = os.path.getmtime("disturbed")
    print("FAULT %s %.1f %s" % (type(error).__name__, time.time() - began, error.message))
    sys.exit(9)
finally:
    if fault == "stop" and not bad:
        with contextlib.suppress(ProcessLookupError):  # the other survivor was first
            os.kill(int(open("pid_%s" % sys.argv[2]).read()), signal.SIGKILL)
""".replace("STEPS", str(STEPS))


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Function that runs a job whose rank `bad` does something at a step; returns (how each rank ended, its folder)."""
    with forked.server(3600 if NIGHTLY else 600) as together:

        def run(fault, bad=1, at=6, size=2, folder=None, environment=""):
            folder = folder or tmp_path_factory.mktemp("job")
            (folder / "script.py").write_text(TRAINING)
            hosts = ",".join("localhost:%d" % port for port in layout.free_ports(size))
            line = "RANK_SIZE=%d RANK_ID=%d NPU_SHIM_HOSTS=%s HCCL_EXEC_TIMEOUT=%d HCCL_CONNECT_TIMEOUT=%d "
            line += "CUDA_VISIBLE_DEVICES= python script.py %s %d %d . %d"
            limit = LIMIT if fault in WAITED_FOR else 120
            words = (limit, limit, fault, bad, at, STEPS)
            ended = together([(environment + line % (size, rank, hosts, *words), folder) for rank in range(size)])
            return ended, folder

        yield run


@pytest.fixture(scope="module")
def undisturbed(job):
    """What each rank ends with where nothing happens, by the number of ranks."""
    known = {}

    def of(size):
        if size not in known:
            known[size] = [results(process) for process in job("nothing", size=size)[0]]
            assert all(values == known[size][0] for values in known[size])
        return known[size]

    return of


def results(ended):
    assert ended.status == 0, ended.output
    return json.loads([line for line in ended.output.splitlines() if line.startswith("[[")][-1])


def faults(ended, bad):
    """What the ranks but `bad` say: the set of their errors; each ended within the limit, and a little."""
    said = set()
    for rank, process in enumerate(ended):
        if rank != bad:
            assert process.status == 9, process.output
            kind, seconds, text = re.search("^FAULT (.*?) (.*?) (.*)$", process.output, re.MULTILINE).groups()
            # the machine may be busy; TensorFlow alone would wait for ever
            assert float(seconds) < LIMIT + 30, process.output
            said.add((kind, text))
    return said


def check(said, kind, bad, words):
    """All say the same: which rank, where it is, and in which run, collective and node one of them waits."""
    ((kind_said, text),) = said
    assert kind_said == kind, text
    assert re.match(r"npu_shim: rank %d \(localhost:\d+\): %s; " % (bad, words), text), text
    where = r"; rank \d \(localhost:\d+\) waits in run \d+, with the collective '.*Collective.*' \(Collective"
    assert re.search(where, text), text


def resumed(job, undisturbed, size, folder):
    """The job goes on from its checkpoint, and ends as one that nobody disturbed."""
    ended, _ = job("nothing", size=size, folder=folder)
    assert [results(process) for process in ended] == undisturbed(size)
    assert len(list(folder.glob("model-*.index"))) == STEPS // 4


SIZES = [2, pytest.param(3, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("bad", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_killed_rank_is_named_and_the_job_goes_on_bit_for_bit(job, undisturbed, bad):
    ended, folder = job("kill", bad=bad)
    assert ended[bad].status == -9
    check(faults(ended, bad), "InternalError", bad, "its process has ended")
    resumed(job, undisturbed, 2, folder)


TOGETHER = "NPU_SHIM_ENGINE=pjrt "
NIGHTLY_FAULTS = [("kill", 1, 1), ("stop", 1, 1), ("input", 1, 1), ("kill3.5", 1, 1), ("kill", 0, 2), ("stop", 1, 2)]


@pytest.mark.skipif(not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none")
@pytest.mark.nightly  # a minute each: JAX in a worker for each rank
@pytest.mark.parametrize(("fault", "bad", "devices"), [("kill", 0, 1), *NIGHTLY_FAULTS])
def test_a_rank_is_named_that_is_lost_where_ranks_run_one_program(job, fault, bad, devices):
    """Rank 0 has the service that brings the programs together; without it the others' workers end at once."""
    ended, _ = job(fault, bad=bad, environment=TOGETHER + "NPU_SHIM_DEVICES=%d " % devices)
    assert ("on 2 devices (cpu)" in ended[1 - bad].output) == (devices == 2)
    assert "which 2 ranks run together" in ended[1 - bad].output
    words = {
        "stop": ("DeadlineExceededError", STOPPED),
        "input": ("DeadlineExceededError", r"it has not come to run \d+ in \d+ s, and has run nothing for \d+ s"),
    }
    kind, said = words.get(fault, ("InternalError", "its process has ended"))
    check(faults(ended, None if fault == "input" else bad), kind, bad, said)


STOPPED = r"it does not answer \(for \d+ s\); is its process stopped\?"


@pytest.mark.nightly
def test_a_stopped_rank_is_named(job):
    ended, _ = job("stop")
    check(faults(ended, 1), "DeadlineExceededError", 1, STOPPED)


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_whose_input_stands_still_is_named(job, undisturbed, size):
    """It is in the same run as the others, and does not come to its collective."""
    ended, folder = job("input", bad=size - 1, size=size)
    said = r"it has not come to the collective '.*Collective.*', and stands still in its run for \d+ s"
    check(faults(ended, None), "DeadlineExceededError", size - 1, said)  # also that rank's own error
    if size > 2:
        resumed(job, undisturbed, size, folder)


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_is_too_late_is_named(job, undisturbed, size):
    ended, folder = job("late9", size=size)
    said = r"it has not come to run \d+ in \d+ s, and has run nothing for \d+ s"
    check(faults(ended, 1), "DeadlineExceededError", 1, said)
    ((_, text),) = faults(ended, 1)
    assert text in ended[1].output  # it finds out when it comes
    resumed(job, undisturbed, size, folder)


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_never_starts_is_named(job, size):
    ended, _ = job("never", size=size)
    check(faults(ended, 1), "DeadlineExceededError", 1, r"nothing listens there after \d+ s: it has not started")


@pytest.mark.parametrize("size", SIZES)
def test_an_error_in_one_ranks_python_is_every_ranks(job, undisturbed, size):
    ended, folder = job("raise", size=size)
    ((kind, text),) = faults(ended, 1)
    assert kind == "InternalError"
    assert re.match(r"npu_shim: rank 1 \(localhost:\d+\) has ended: ValueError: planted in rank 1", text)
    if size > 2:
        resumed(job, undisturbed, size, folder)


GRAPHS = [
    # what rank 1's graph has; the variable, how its gradient travels there, and at the other ranks
    (2, "dtype", "net/v:0", r"as float64 \[5, 6\]", r"as float32 \[5, 6\]"),
    (2, "none", "net/w:0", "not at all", r"as float32 \[6, 1\]"),
    (2, "more", "net/more:0", r"as float32 \[3\]", "not at all"),
]
NIGHTLY_GRAPHS = [*GRAPHS[1:], *((3, *graph[1:]) for graph in GRAPHS)]


@pytest.mark.parametrize(
    ("size", "fault", "variable", "theirs", "ours"),
    [GRAPHS[0], *(pytest.param(*graph, marks=pytest.mark.nightly) for graph in NIGHTLY_GRAPHS)],
)
def test_another_graph_is_named_before_anything_runs(job, size, fault, variable, theirs, ours):
    ended, _ = job(fault, size=size)
    ((kind, text),) = faults(ended, None)
    said = r"%s travels %s at rank 1 \(.*:\d+\), %s at rank 0 \(.*:\d+\), in '.*Collective"
    assert kind == "InvalidArgumentError"
    assert re.search(said % (variable, theirs, ours), text), text


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["dtype", "none", "more"])
def test_another_graph_on_the_first_rank_is_named(job, fault):
    """Both others compare theirs with it, and find it at the same time."""
    ended, _ = job(fault, bad=0, size=3)
    ((kind, text),) = faults(ended, None)
    assert kind == "InvalidArgumentError"
    assert re.search(r" at rank [12] \(.*:\d+\), .* at rank 0 \(.*:\d+\), in '.*Collective", text), text


@pytest.mark.parametrize(("theirs", "count"), [(tf.__version__, 0), (None, 0), ("0.12.1", 1)])
def test_a_rank_with_another_tensorflow_is_named(monkeypatch, theirs, count):
    """Servers of TensorFlow 1 and 2 do not understand each other: a collective of both would fail, or wait."""
    ended = []
    monkeypatch.setattr(watch, "told", lambda rank, name: theirs)
    monkeypatch.setattr(watch, "name_of", "rank {}".format)
    monkeypatch.setattr(watch, "_own", [1])
    monkeypatch.setattr(watch._Waiting, "_end_job", lambda self, *words: ended.append(words))
    watch._Waiting({}, {}, {}, 1.0)._compare_releases(0)
    text = "rank 0 has TensorFlow 0.12.1, and rank 1 has %s: ranks of one job need the same TensorFlow" % tf.__version__
    assert ended == [("INVALID_ARGUMENT", 0, text)] * count


@pytest.mark.nightly
@pytest.mark.parametrize("trial", range(20))
def test_any_rank_killed_at_any_time(job, undisturbed, trial):
    chosen = random.Random(trial)
    bad, at, later = chosen.randrange(3), chosen.randrange(STEPS - 1), chosen.uniform(0, 15)
    ended, folder = job("kill%.1f" % later, bad, at, 3)
    assert ended[bad].status == -9
    check(faults(ended, bad), "InternalError", bad, "its process has ended")
    resumed(job, undisturbed, 3, folder)


@pytest.mark.nightly
@pytest.mark.parametrize("trial", range(5))
def test_any_rank_stopped_at_any_step(job, undisturbed, trial):
    chosen = random.Random(100 + trial)
    bad, at = chosen.randrange(3), chosen.randrange(STEPS)
    ended, folder = job("stop", bad, at, 3)
    check(faults(ended, bad), "DeadlineExceededError", bad, STOPPED)
    resumed(job, undisturbed, 3, folder)


@pytest.mark.nightly
def test_a_rank_that_is_20_s_late(job, undisturbed):
    ended, _ = job("late20", size=3)
    assert [results(process) for process in ended] == undisturbed(3)
