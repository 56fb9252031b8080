"""The messages between the engine and its worker: whatever fails, both sides know the same blocks and kept values.

The worker's side runs in a thread, on a device of NumPy, so that every message and every call of the device can fail.
"""

import copy
import itertools
import os
import signal
import socket
import threading
import time
import types

import numpy as np
import pytest

from npu_shim.engine.device.programs import Loading
from npu_shim.engine.device.worker import remote, serving, starting
from npu_shim.engine.device.worker.channel import Channel, Closed
from npu_shim.pjrt.manifest import Manifest, Tensor


def program(rows, width):
    """A step that fetches the sum of its feed and of "w", and adds the feed's sum to "w"."""
    feed, state = Tensor("feed", "x:0", (rows,), "float32"), Tensor("state", "w", (width,), "float32")
    return Manifest((feed, state), (Tensor("fetch", "loss:0", (), "float32"), state))


PROGRAMS = {"small": program(4, 3), "large": program(40, 3), "tiny": program(2, 3), "wide": program(400, 5)}
SMALL, LARGE, TINY, WIDE = PROGRAMS
# what a script makes the engine do: a larger program needs a new block, a smaller one is put into the block that is
# there, and a wider variable needs new places
CALLS = (
    ("load", SMALL), ("put", 3), ("run", SMALL), ("run", SMALL), ("load", LARGE), ("load", TINY), ("run", TINY),
    ("run", SMALL), ("run", LARGE), ("get", None), ("put", 3), ("run", LARGE), ("unload", TINY), ("load", TINY),
    ("run", TINY), ("load", WIDE), ("put", 5), ("run", WIDE), ("get", None), ("put", 3), ("run", SMALL), ("run", LARGE),
    ("get", None),
)  # fmt: skip


class Numbers:
    """A device of NumPy, with the methods of `programs.InProcess`; its call number `fails` fails, after its effect."""

    platform = where = "cpu"

    def __init__(self, fails=None):
        self.calls, self._fails = 0, fails
        self._values, self._number = {}, 0
        self.there, self.has_room = {}, True

    def _called(self):
        self.calls += 1
        if self.calls - 1 == self._fails:
            raise RuntimeError("out of memory")

    def load(self, manifest, content, cache):
        self._called()
        self._number += 1
        return Loading(self._number - 1)

    def unload(self, number):
        self._called()

    def put(self, values):
        self._called()
        self._values.update({name: np.array(value) for name, value in values.items()})

    def run_placed(self, number, places, count):
        self._called()
        loss = places["x:0"].sum() + self._values["w"].sum()
        self._values["w"] = self._values["w"] + places["x:0"].sum()
        return {"loss:0": loss}

    def place(self, number, place, feeds):
        """Adds 1 to what is brought to the device: where a step finds it there, its result says so."""
        if not self.has_room:
            raise RuntimeError("out of memory")
        self.there[place] = {name: value + 1 for name, value in feeds.items()}

    def placed(self, place, names):
        there = self.there.pop(place)
        return {name: there[name] for name in names}

    def settle(self):
        pass

    def copy_to(self, places):
        for name, place in places.items():
            np.copyto(place, self._values[name])


class Here:
    """In place of `starting.Started`: the worker's side in a thread. At message number `at`, `what` happens."""

    is_ours = True

    def __init__(self, device, what=None, at=None):
        self.device, self.messages, self._what, self._at = device, 0, what, at

    def connect(self, message):
        (ours, other), (our_aside, aside) = socket.socketpair(), socket.socketpair()
        here, theirs = self, Channel(other)
        receive = theirs.receive

        def received():
            message, data, descriptors = receive()
            here.messages += 1
            if here.messages - 1 == here._at:
                if here._what == "dies":
                    raise Closed
                message[here._what] = message.get(here._what, 0) + 1
            return message, data, descriptors

        theirs.receive = received
        served = serving._Served(theirs, Channel(aside), message)
        threading.Thread(target=served.serve, daemon=True).start()
        return Channel(ours), Channel(our_aside)

    def gone(self):
        return starting.Gone("the engine's worker has ended")


@pytest.fixture
def opened(monkeypatch):
    """Returns a function of a Here and of `exact` that opens a Worker on it."""

    def worker(here, exact=True):
        # a clock that goes on by one whenever it is asked: a worker that is not exact keeps every second step
        monkeypatch.setattr(serving, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
        monkeypatch.setattr(serving, "SHARE", 0.5)
        monkeypatch.setattr(serving, "InProcess", lambda *opening: here.device)
        monkeypatch.setattr(starting, "worker", lambda *opening: here)
        return remote.Worker("python", exact)

    return worker


class Model:
    """What the calls give by the book; a call that fails changes nothing."""

    def __init__(self):
        self.w, self.before, self.numbers = None, [], {}

    def follows(self, worker, calls=CALLS):
        """Makes calls of a worker until one fails that is not the first; asserts what each gives."""
        for number, (what, of) in enumerate(calls):
            if self._lacks(what, of):  # what a failed call would have given
                continue
            before = copy.copy((self.w, self.numbers))
            try:
                getattr(self, "_" + what)(worker, of, np.float32(number + 1))
            except RuntimeError:
                assert self.numbers == before[1]
                raise

    def _lacks(self, what, of):
        if what not in ("run", "unload"):
            return False
        return of not in self.numbers or np.shape(self.w) != PROGRAMS[of].arguments[-1].shape

    def _load(self, worker, name, value):
        self.numbers[name] = worker.load(PROGRAMS[name], b"").number

    def _unload(self, worker, name, value):
        worker.unload(self.numbers[name])
        del self.numbers[name]

    def _put(self, worker, width, value):
        worker.put({"w": np.full(width, value, np.float32)})
        self.w, self.before = np.full(width, value, np.float32), []

    def _run(self, worker, name, value):
        x = np.full(PROGRAMS[name].arguments[0].shape, value, np.float32)
        assert worker.run(self.numbers[name], {"x:0": x})["loss:0"] == x.sum() + self.w.sum()
        self.before.append(self.w)
        self.w = self.w + x.sum()

    def _get(self, worker, _, value):
        if self.w is not None:
            np.testing.assert_array_equal(worker.get(["w"])["w"], self.w)


def goes_on(worker):
    """Makes all calls, again from where one has failed; returns how often that was."""
    model, left, failures = Model(), list(CALLS), 0
    while left:
        try:
            model.follows(worker, left[:1])
        except RuntimeError as error:
            assert "out of memory" in str(error) or "disagree" in str(error)  # noqa: PT017
            failures += 1
        left = left[1:]
        model._get(worker, None, None)
    return failures


def test_a_device_that_refuses_any_call_leaves_both_sides_alike(opened):
    """Regression: the worker had taken the block of a program that XLA then refused, and the engine had not."""
    here = Here(Numbers())
    assert goes_on(opened(here)) == 0
    assert here.device.calls == sum(what != "get" for what, _ in CALLS)
    for number in range(here.device.calls):
        assert goes_on(opened(Here(Numbers(number)))) == 1, number


def refusals(opened, what):
    """How often a worker refuses where one message, each in turn, names another block or generation."""
    here = Here(Numbers())
    goes_on(opened(here))
    return [goes_on(opened(Here(Numbers(), what, number))) for number in range(here.messages)]


def test_a_message_of_another_generation_is_refused_and_changes_nothing(opened):
    assert set(refusals(opened, "generation")) == {1}


def test_a_message_of_another_block_is_refused_and_changes_nothing(opened):
    runs = sum(what in ("run", "load") for what, _ in CALLS)
    refused = refusals(opened, "block")  # a new block's number that was changed is refused whenever it is named
    assert sum(count > 0 for count in refused) == runs


def test_an_answer_of_another_generation_is_an_error(opened):
    worker = opened(Here(Numbers()))
    worker.put({"w": np.zeros(3, np.float32)})
    worker._kept.generation += 1
    with pytest.raises(RuntimeError, match="disagree: generation 1 is spoken of, and 2 is there"):
        worker.load(PROGRAMS[SMALL], b"")


@pytest.mark.parametrize("exact", [True, False], ids=["each step kept", "kept now and then"])
def test_a_worker_that_dies_at_any_message_leaves_the_values_of_a_completed_step(opened, exact):
    here = Here(Numbers())
    Model().follows(opened(here, exact))
    for number in range(here.messages):
        model, worker = Model(), opened(Here(Numbers(), "dies", number), exact)
        with pytest.raises(starting.Gone):
            model.follows(worker)
        behind = worker.recover()
        assert not (exact and behind)
        if model.w is not None:
            known = [*model.before, model.w]
            np.testing.assert_array_equal(worker.get(["w"])["w"], known[len(known) - 1 - behind])


def test_ctrl_c_while_a_feed_is_staged_leaves_both_sides_alike(opened, monkeypatch):
    here = Here(Numbers())
    worker, model, place = opened(here), Model(), here.device.place
    model.follows(worker, [("load", SMALL), ("put", 3), ("run", SMALL)])
    number, times = model.numbers[SMALL], itertools.count()

    def interrupted(*of):
        is_first = next(times) == 0
        if is_first:
            place(*of)
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)  # who took the answer of one message for that of the next would not wait for it
        if not is_first:
            place(*of)

    monkeypatch.setattr(here.device, "place", interrupted)
    first, second = (np.full(4, value, np.float32) for value in (2, 5))
    with pytest.raises(KeyboardInterrupt):
        worker.stage(number, {"x:0": first})
    worker.put({"w": np.zeros(3, np.float32)})
    assert worker.run(number, {"x:0": second}, staged=worker.stage(number, {"x:0": second}))["loss:0"] == 4 * 5 + 4


def test_what_was_staged_serves_the_step_that_is_fed_it_and_no_other(opened):
    here = Here(Numbers())
    worker, model = opened(here), Model()
    model.follows(worker, [("load", SMALL), ("load", LARGE), ("put", 3), ("run", SMALL)])
    small, large = model.numbers[SMALL], model.numbers[LARGE]
    w, expected = np.zeros(3, np.float32), []

    def run(number, x, staged, adds):
        """A step with w = 0, whose loss is the sum of its feed; and that of the ones that staging has added."""
        worker.put({"w": w})
        expected.append(x.sum() + adds)
        return worker.run(number, {"x:0": x}, staged=staged)["loss:0"] - expected[-1]

    xs = [np.full(size, 1 + n, np.float32) for n, size in enumerate((4, 4, 40, 4, 40))]
    first = worker.stage(small, {"x:0": xs[0], "unknown:0": xs[0]})
    assert run(small, xs[0], first, 4) == 0
    assert run(small, xs[0], first, 0) == 0  # once
    second = worker.stage(small, {"x:0": xs[0]})
    assert run(small, xs[0].copy(), second, 0) == 0  # it may differ from what was staged
    third, fourth = worker.stage(small, {"x:0": xs[1]}), worker.stage(large, {"x:0": xs[2]})
    assert run(small, xs[1], third, 0) == 0  # the fourth stands in its place
    assert run(small, xs[1], None, 0) == 0
    assert run(large, xs[2], fourth, 40) == 0
    for x, number in ((xs[3], small), (xs[4], large)) * 2:
        assert run(number, x, worker.stage(number, {"x:0": x}), len(x)) == 0
    assert worker.stage(small, {"x:0": xs[2]}) is None  # another shape: it waits for its step
    here.device.has_room = False
    assert worker.stage(small, {"x:0": xs[0]}) is None
    assert run(small, xs[0], None, 0) == 0
    worker.close()
    assert worker.stage(small, {"x:0": xs[0]}) is None
