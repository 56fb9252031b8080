"""Functions of Python's own library with the arguments that Python 3.7 took."""

from __future__ import annotations

import html
from typing import Any, Callable

Say = Callable[[str], None]


def takes_sets(sample: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """random.sample of a set, as until Python 3.10: of its elements in their own order."""

    def of_set(*args: Any, **kwargs: Any) -> Any:
        given = [tuple(one) if _is_set(one) else one for one in args]
        if "population" in kwargs and _is_set(kwargs["population"]):
            kwargs["population"] = tuple(kwargs["population"])
        if any(map(_is_set, args)):
            say("random.sample takes sets here, which Python 3.11 refuses")
        return sample(*given, **kwargs)

    return of_set


def _is_set(value: Any) -> bool:
    from collections.abc import Set

    return isinstance(value, Set)


def takes_randoms(shuffle: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """random.shuffle(x, random) as until Python 3.10: `random` gives the numbers in [0, 1) that say where x[i] goes."""

    def of_random(*args: Any, **kwargs: Any) -> Any:
        *own, x, random = args if len(args) > 1 and callable(args[-1]) else (*args, kwargs.pop("random", None))
        if random is None:
            return shuffle(*own, x, **kwargs)
        say("random.shuffle takes random here, which Python 3.11 refuses")
        for i in reversed(range(1, len(x))):
            j = int(random() * (i + 1))
            x[i], x[j] = x[j], x[i]
        return None

    return of_random


def escape(s: str, quote: bool = False) -> str:
    """A text with &, < and > as HTML has them, and " with `quote`, as cgi.escape."""
    escaped = html.escape(s, False)
    return escaped.replace('"', "&quot;") if quote else escaped


def unescape(parser: Any, s: str) -> str:
    """A text with HTML's references read, as HTMLParser.unescape."""
    return html.unescape(s)
