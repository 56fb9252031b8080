"""How far ranks are: what they tell each other, and what is wrong with one, without TensorFlow."""

import json

import pytest

from npu_shim.distributed.progress import Collective, Progress, difference, judged, of_json

GROUP = 1


def reduce_of(key, dtype="float32", shape=(4,), node=None, reduction="Add", moves=()):
    return Collective(node or "node_%d" % key, "CollectiveReduce", dtype, shape, GROUP, key, reduction, moves)


ONE, TWO = reduce_of(1), reduce_of(2)
# ours, theirs -> what differs
PAIRS = [
    ([], [], None),
    ([ONE, TWO], [TWO, ONE], None),  # in any order
    ([ONE], [reduce_of(1, node="elsewhere")], None),  # nodes may have any names
    ([reduce_of(1, shape=None)], [ONE], None),  # what is not known beforehand fits
    ([reduce_of(1, shape=())], [reduce_of(1, shape=())], None),
    ([reduce_of(None, node="a")], [reduce_of(None, node="a")], None),  # without a key its name counts
    ([ONE], [reduce_of(1, dtype="float64")],
     "'node_1' (CollectiveReduce Add, float32 [4]) at me, 'node_1' (CollectiveReduce Add, float64 [4]) at you"),
    ([ONE], [reduce_of(1, shape=(4, 1))],
     "'node_1' (CollectiveReduce Add, float32 [4]) at me, 'node_1' (CollectiveReduce Add, float32 [4,1]) at you"),
    ([ONE], [reduce_of(1, reduction="Mul")],
     "'node_1' (CollectiveReduce Add, float32 [4]) at me, 'node_1' (CollectiveReduce Mul, float32 [4]) at you"),
    ([ONE, TWO], [ONE], "'node_2' (CollectiveReduce Add, float32 [4]) at me, none at you"),
    ([ONE], [ONE, TWO], "'node_2' (CollectiveReduce Add, float32 [4]) at you, none at me"),
    ([reduce_of(1, node="n")], [reduce_of(2, "float16", node="n")],
     "'n' (CollectiveReduce Add, float32 [4]) at me, 'n' (CollectiveReduce Add, float16 [4]) at you"),
    # of gradients in buckets the variable is named
    ([reduce_of(1, moves=(("u:0", "float32 [1]"), ("v:0", "float32 [3]")))],
     [reduce_of(2, moves=(("u:0", "float32 [1]"), ("v:0", "float16 [3]")))],
     "v:0 travels as float32 [3] at me, as float16 [3] at you, in 'node_1'"),
    ([reduce_of(1, moves=(("u:0", "float32 [1]"),))],
     [reduce_of(2, moves=(("u:0", "float32 [1]"), ("w:0", "float32 [3]")))],
     "w:0 travels not at all at me, as float32 [3] at you, in 'node_2'"),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "wanted"), PAIRS)
def test_differences_are_named(ours, theirs, wanted):
    sent = of_json(json.loads(json.dumps(theirs)))  # as they travel
    assert sent == theirs
    assert difference(ours, sent, "me", "you") == wanted


def test_runs_are_counted_by_group_and_remembered():
    progress = Progress()
    train, test = [ONE], [TWO]
    first = progress.begin({GROUP: train})
    assert first == {GROUP: (1, True)}
    assert progress.state()["running"] == [GROUP]
    progress.end(first, None)
    second = progress.begin({GROUP: train})
    assert second == {GROUP: (2, False)}  # nothing new
    progress.end(second, "ValueError: no")
    assert progress.begin({GROUP: test, 7: test}) == {GROUP: (3, True), 7: (1, True)}
    assert [progress.of_run(GROUP, number) for number in (1, 2, 3, 4)] == [train, train, test, None]
    state = progress.state()
    assert (state["runs"], sorted(state["running"])) == ({"1": 3, "7": 1}, [1, 7])
    assert state["failed"]["1"][:2] == (2, "ValueError: no")
    json.dumps(state)


def test_a_kind_of_run_is_forgotten_late():
    progress = Progress()
    kinds = [[reduce_of(number)] for number in range(100)]
    for each in kinds:
        progress.end(progress.begin({GROUP: each}), None)
    assert progress.of_run(GROUP, 100) == kinds[-1]
    assert progress.of_run(GROUP, 50) == kinds[49]
    assert progress.of_run(GROUP, 1) is None


def state(runs=5, running=True, failed=None, ended=None, since=7.9):
    return {"runs": {"1": runs}, "running": [1] if running else [], "since": since, "ended": ended, "fault": None,
            "failed": {} if failed is None else {"1": failed}}  # fmt: skip


# the state of another rank, seconds of our run 5 -> what is wrong with it
JUDGED = [
    (state(), 1000, None),  # it is in the same run: a long one
    (state(running=False), 5, None),  # it has just ended it
    (state(runs=4, running=False), 119, None),  # late, but not too late
    (state(runs=4, running=False, since=120.9), 121,
     ("DEADLINE_EXCEEDED", "it has not come to run 5 in 121 s, and has run nothing for 120 s")),
    (state(runs=4, running=False, since=7.9), 121, None),  # it evaluates
    (state(runs=6), 119, None),
    (state(runs=6), 121, ("INVALID_ARGUMENT", "it is in run 6 already, and did without this rank")),
    (state(runs=4, running=False, ended=""), 3, ("INTERNAL", "it has ended after run 4")),
    (state(runs=5, running=False, ended=""), 3, None),  # it waits for us to end
    (state(runs=5, running=False, failed=(5, "OutOfRangeError: End of sequence", 11.0)), 12,
     ("INTERNAL", "its run 5 has failed: OutOfRangeError: End of sequence")),
    (state(runs=5, running=False, failed=(5, "OutOfRangeError: End of sequence", 2.0)), 12, None),  # ours may do so too
    (state(runs=5, running=False, failed=(4, "OutOfRangeError: End of sequence", 99.0)), 12, None),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "waited", "wanted"), JUDGED)
def test_what_is_wrong_with_a_rank_that_answers(seen, waited, wanted):
    assert judged(seen, GROUP, 5, waited, 120) == wanted


def test_errors_that_others_cause_do_not_count():
    lost = state(runs=5, running=False, failed=(5, "UnavailableError: Socket closed", 0.1))
    assert judged(lost, GROUP, 5, 1, 120, settled=0, caused=("UnavailableError",)) is None
    assert judged(lost, GROUP, 5, 1, 120, settled=0, caused=("AbortedError",))[0] == "INTERNAL"
    assert judged(lost, GROUP, 5, 1, 120, settled=0)[0] == "INTERNAL"
