"""Signals in the middle of a step: their handlers run when its state is stored."""

import os
import signal
import threading

import pytest

from npu_shim.pjrt.interrupts import SIGNALS, uninterrupted


class Ended(Exception):
    pass


@pytest.fixture
def handled():
    """Has each signal raise Ended, and gives the signals whose handlers ran."""
    seen = []

    def end(number, frame):
        seen.append(number)
        raise Ended(number)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_handler_runs_behind_the_scope_around_all_others(number, handled):
    done = []

    def step():
        with uninterrupted():
            with uninterrupted():
                os.kill(os.getpid(), number)
                done.append("inside")
            assert not handled
            done.append("behind the inner scope")

    with pytest.raises(Ended):
        step()
    assert done == ["inside", "behind the inner scope"]
    assert handled == [number]


def test_a_signal_that_nobody_handles_stays_as_it_is_and_handlers_are_put_back(handled):
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    before = [signal.getsignal(number) for number in SIGNALS]
    with uninterrupted():
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_handles_no_signals(handled):
    seen = []

    def inside():
        with uninterrupted():
            seen.append([signal.getsignal(number) for number in SIGNALS])

    before = [signal.getsignal(number) for number in SIGNALS]
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]
