"""What was compiled for different shapes: a few programs at a time, of which the least recently used gives way."""

from __future__ import annotations

import collections
from typing import Any, Callable, Mapping

from npu_shim.rewriter.errors import ConfigError
from npu_shim.session import lines

KEY, MOST = "npu_shim_programs", 16
MANY = (
    "compile_step was fed more than %d sets of shapes and lengths: each further one takes the place of the one that "
    "was used least recently, which is compiled again when it comes back; pad to fewer, or allow more (%s)"
)


def most_of(values: Mapping[str, Any] | None) -> int:
    """Returns how many programs of a step are kept at a time, as option values say.

    Raises:
        ConfigError: the number is below 1.
    """
    wanted = (values or {}).get(KEY)
    if wanted is not None and (not isinstance(wanted, int) or wanted < 1):
        raise ConfigError("%s is %r, expected a number of programs, 1 or more" % (KEY, wanted))
    return wanted or MOST


def bound_of(values: Mapping[str, Any]) -> int:
    """Returns the same for a session's options, of whose wrong values the session's first run tells."""
    wanted = values.get(KEY)
    return wanted if isinstance(wanted, int) and wanted > 0 else MOST


class Recent:
    """Programs by what they were compiled for.

    Args:
        most: how many there are at a time.
        drop: function of a program that gives way; it frees what the program holds.
    """

    def __init__(self, most: int, drop: Callable[[Any], Any] = lambda program: None) -> None:
        self.most, self._drop = most, drop
        self._programs: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._programs)

    def get(self, key: Any) -> Any:
        """Returns the program for a key, which is the one that was used last from now on; None if there is none."""
        if key not in self._programs:
            return None
        self._programs.move_to_end(key)
        return self._programs[key]

    def add(self, key: Any, program: Any) -> None:
        """Adds the program for a key; the least recently used one gives way where there are as many as there may be."""
        if len(self._programs) >= self.most:
            lines.once(MANY % (self.most, KEY))
            self._drop(self._programs.popitem(last=False)[1])
        self._programs[key] = program
