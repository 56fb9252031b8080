"""What has been found so far, beside the output: each trial once it has ended, so that the same command goes on."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Callable, Mapping

from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.errors import ConfigError

SUFFIX = ".tune"
VERSION = 1


class State:
    """The trials that have ended, in a file.

    Attributes:
        path: of the file.
        resumed: how many trials it had when it was opened.
    """

    def __init__(self, path: str, key: Mapping[str, Any]):
        self.path, self._key = path, {**key, "version": VERSION}
        self._trials: dict[str, Any] = self._read()
        self.resumed = len(self._trials)

    @property
    def count(self) -> int:
        """How many trials have ended."""
        return len(self._trials)

    def has(self, name: str) -> bool:
        """Whether a trial has ended."""
        return name in self._trials

    def trial(self, name: str, run: Callable[[], Mapping[str, Any]]) -> Any:
        """Returns what a trial gave; runs it and writes the file where it has not ended before."""
        if name not in self._trials:
            self._trials[name] = dict(run())
            with atomic_write.file(self.path) as f:
                f.write((json.dumps({"key": self._key, "trials": self._trials}) + "\n").encode("utf-8"))
        return self._trials[name]

    def remove(self) -> None:
        """Removes the file."""
        if os.path.exists(self.path):
            os.unlink(self.path)

    def _read(self) -> dict[str, Any]:
        if not os.path.exists(self.path):
            return {}
        try:
            with open(self.path, encoding="utf-8") as f:
                content = json.load(f)
            key, trials = content["key"], content["trials"]
        except (OSError, ValueError, KeyError, TypeError) as reason:
            text = "'%s' is no state of npu-shim tune: remove it, or name another --out"
            raise ConfigError(text % self.path) from reason
        other = sorted(name for name in {**key, **self._key} if key.get(name) != self._key.get(name))
        if other:
            told = ", ".join("%s was %r, is %r" % (name, key.get(name), self._key.get(name)) for name in other)
            text = "'%s' is the state of another tuning (%s): remove it, or name another --out"
            raise ConfigError(text % (self.path, told))
        return dict(trials)


def digest(path: str) -> str:
    """Returns a short hash of a file's content."""
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:12]
