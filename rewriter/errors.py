"""The three errors of npu_shim, words that must be one of a few, and the sentence that suggests a nearer name.

Inside a session the hook turns them into TensorFlow's own error types, see `ConfigError.code`.
"""

import difflib
import re
from typing import Dict, Iterable, Mapping, Optional, Tuple

LONGEST = 300  # characters of a word or of quoted text in a message; a path may be longer, and its ends tell it
_LONG = re.compile(r"'[^'\n]{%d,}'|\S{%d,}" % (LONGEST, LONGEST))


def unnamed(reason: object) -> str:
    """Returns the text of an error without our name in front."""
    return str(reason).partition("npu_shim: ")[2] or str(reason)


def shortened(message: str) -> str:
    """A message without the middle of each very long word or quoted text in it: users' names may have any length."""
    return _LONG.sub(lambda match: "%s...%s" % (match.group()[: LONGEST // 2], match.group()[-20:]), message)


class ConfigError(ValueError):
    """A user's option, file or argument cannot be taken.

    Attributes:
        problems: tuple of str, one sentence a problem; the message joins them by newlines.
        code: the TensorFlow error code the original bridge answers with: "INVALID_ARGUMENT" or "INTERNAL".
    """

    def __init__(self, *problems: str, code: str = "INVALID_ARGUMENT") -> None:
        self.problems: Tuple[str, ...] = tuple(map(shortened, problems))
        super().__init__("\n".join("npu_shim: " + problem for problem in self.problems))
        self.code = code


class PlanError(ValueError):
    """A graph cannot be rewritten as asked, for example an op that must run in a dtype it does not have."""

    code = "INVALID_ARGUMENT"

    def __init__(self, problem: str) -> None:
        super().__init__("npu_shim: " + shortened(problem))


def raise_first(problems: Mapping[str, PlanError]) -> None:
    """Raises the problem of the node that is first by name, if there is one: the order of the nodes does not matter.

    Args:
        problems: what is wrong with single nodes, by the node's name.
    """
    if problems:
        raise problems[min(problems)]


class VerifyError(RuntimeError):
    """The rewritten graph breaks the contract: a fault of npu_shim, and the graph is not returned."""

    code = "INTERNAL"

    def __init__(self, violations: Iterable[str]) -> None:
        violations = tuple(violations)
        super().__init__("npu_shim: the rewritten graph is not valid: " + "; ".join(violations))
        self.violations = violations


def one_of(word: object, known: Iterable[str], what: str) -> str:
    """Returns `word`, which must be one of `known`.

    Args:
        word: the user's.
        known: the words that are accepted, in the order of the message.
        what: where the word stands, for the message.

    Raises:
        ConfigError: another word.
    """
    words = tuple(known)
    if word not in words:
        raise ConfigError("%s is '%s', expected one of %s%s" % (what, word, ", ".join(words), nearest(word, words)))
    return str(word)


def nearest(name: object, known: Iterable[str]) -> str:
    """Returns " (did you mean 'x'?)" for the closest of `known` (an iterable of str), or "" when none is close."""
    close = closest(name, known)
    return "" if close is None else " (did you mean '%s'?)" % close


def closest(name: object, known: Iterable[str]) -> Optional[str]:
    """Returns the one of `known` (an iterable of str) that is most like `name`, or None; case does not count."""
    folded: Dict[str, str] = {}
    for candidate in sorted(known):
        folded.setdefault(candidate.lower(), candidate)
    close = difflib.get_close_matches(str(name).lower(), list(folded), 1, 0.6)
    return folded[close[0]] if close else None
