"""A process that must not outlive the one that started it, whatever way that one ends. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal

DEATH = 1  # PR_SET_PDEATHSIG of prctl: the signal for when the thread that started us ends


def die_with(parent: int) -> None:
    """Has this process killed when the thread of the parent that started it ends, also where no Python gets its turn.

    Call it where that thread lives as long as the parent. It is Linux's; elsewhere it only looks once.

    Args:
        parent: process id of the parent, as the parent knows it.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(DEATH, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before we could ask for that
        os._exit(1)
