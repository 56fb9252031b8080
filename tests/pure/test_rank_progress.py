"""How far ranks are: what they tell each other, and what is wrong with one, without TensorFlow."""

import json
import threading

import pytest

from npu_shim.distributed.liveness.progress import (
    Arrival,
    Collective,
    Fault,
    Progress,
    behind,
    difference,
    judged,
    of_json,
)

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
    # a key means one label; one that is not known fits
    ([ONE._replace(label="a")], [ONE._replace(label="a")], None),
    ([ONE._replace(label="a")], [ONE], None),
    ([ONE._replace(label="a")], [ONE._replace(label="b", node="n")],
     ("the key 1 is that of 'node_1' (CollectiveReduce Add, float32 [4]), labelled 'a', at me, and that of 'n' "
      "(CollectiveReduce Add, float32 [4]), labelled 'b', at you: two labels have fallen on one key; build their "
      "collectives in the same order on all ranks")),
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
    for kind in kinds:
        progress.end(progress.begin({GROUP: kind}), None)
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


HERE = {7: Arrival("sum", GROUP, 3, 130.0), 8: Arrival("rows", GROUP, 3, 10.0), 9: Arrival("other", 2, 3, 130.0)}
# what has come to the other rank's collectives, seconds since its run began -> where it stands still
BEHIND = [
    ({"7": ["there", GROUP, 2, 140.0]}, 125.0, ("sum", 125)),
    ({"7": ["there", GROUP, 2, 125.0]}, 140.0, ("sum", 125)),  # something came to it since
    ({"7": ["there", GROUP, 0, 0.0]}, 125.0, ("sum", 125)),  # nothing ever did
    ({"7": ["there", GROUP, 3, 130.0]}, 140.0, None),  # both wait in it: for a third one
    ({"7": ["there", GROUP, 2, 140.0], "5": ["before", GROUP, 3, 2.0]}, 125.0, None),  # it is on its way
    ({"7": ["there", GROUP, 2, 140.0]}, 20.0, None),  # its run began just now
    ({"8": ["there", GROUP, 2, 140.0]}, 125.0, None),  # this rank has not waited long
    ({"9": ["there", 2, 2, 140.0]}, 125.0, None),  # of a group that it is not in
    ({}, 125.0, None),  # its graph is not known yet, or has no marks
]


@pytest.mark.parametrize(("theirs", "still", "wanted"), BEHIND)
def test_a_rank_that_stands_still_in_a_run_is_told_from_one_that_waits(theirs, still, wanted):
    words = "it has not come to the collective '%s', and stands still in its run for %d s"
    sent = json.loads(json.dumps(theirs))
    assert behind(HERE, sent, [GROUP], still, 120) == (None if wanted is None else words % wanted)


def test_runs_of_other_threads_do_not_say_that_a_rank_moves():
    """Queues and supervisors run on while the script's own thread waits for its data."""
    progress = Progress()

    def since_after(touch):
        progress._changed -= 100
        touch()
        return progress.state()["since"]

    assert since_after(progress.touch) < 50  # nobody has run a collective yet
    progress.end(progress.begin({GROUP: [ONE]}), None)
    assert since_after(progress.touch) < 50

    def elsewhere():
        other = threading.Thread(target=progress.touch)
        other.start()
        other.join()

    assert since_after(elsewhere) > 50


def test_ranks_that_find_different_faults_at_one_time_choose_one():
    gone, late = Fault("INTERNAL", 2, "rank 2 has gone"), Fault("DEADLINE_EXCEEDED", 1, "rank 1 is late")
    here, there = Progress(), Progress()
    assert here.propose(late) == (False, late)
    assert there.propose(gone) == (False, gone)
    heard_here, heard_there = there.propose(late), here.propose(gone)
    assert (heard_here, heard_there) == ((False, gone), (False, late))
    assert min(late, heard_here[1], key=Fault.weight) == min(gone, heard_there[1], key=Fault.weight) == gone
    here.fault = gone
    assert here.propose(late) == (True, gone)
