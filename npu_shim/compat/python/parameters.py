"""Functions of libraries that take their arguments as in TensorFlow 1's time: by another name, another word, a default.

Each maker gives a wrapper, as a row of `aliases.FUNCTIONS` has it: of the function, and of what is told of its use.
What it makes of a function gets the function's name and signature by `wrapped`.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Mapping

from npu_shim.compat import callers

Say = Callable[[str], None]
Wrapper = Callable[[Callable[..., Any], Say], Callable[..., Any]]


class _Any:
    """What every value is in."""

    def __contains__(self, value: object) -> bool:
        return True


ANY = _Any()


def takes_names(names: Mapping[str, str]) -> Wrapper:
    """Lets a function take keywords by their old names; `multichannel` is `channel_axis` -1, or None."""

    def takes_both(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        try:
            known = inspect.signature(function).parameters
        except (TypeError, ValueError):
            return function
        old_ones = {old: new for old, new in names.items() if old not in known}

        def by_name(*args: Any, **kwargs: Any) -> Any:
            for old in old_ones.keys() & kwargs.keys():
                new, value = old_ones[old], kwargs[old]
                if new in kwargs:
                    break  # whose error says what is wrong
                say("%s(%s=), which its library no longer takes, is %s= here" % (_name(function), old, new))
                del kwargs[old]
                kwargs[new] = (-1 if value else None) if old == "multichannel" else value
            return function(*args, **kwargs)

        return by_name if old_ones else function

    return takes_both


def takes_words(parameter: str, words: Mapping[Any, Any]) -> Wrapper:
    """Lets a function take an argument by old words."""

    def takes_both(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def by_word(*args: Any, **kwargs: Any) -> Any:
            try:
                given = signature.bind(*args, **kwargs)
                word = given.arguments[parameter]
                new = words[word]
            except (TypeError, KeyError):  # not such a word, or what the function's own error is about
                return function(*args, **kwargs)
            say("%s(%s=%r), which its library no longer takes, is %r here" % (_name(function), parameter, word, new))
            given.arguments[parameter] = new
            return function(*given.args, **given.kwargs)

        return by_word if parameter in signature.parameters else function

    return takes_both


def leaves_out(values: Mapping[str, Any]) -> Wrapper:
    """Lets a function take arguments that it no longer has, where they say what it does anyway: one of these values."""

    def takes_both(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        known = inspect.signature(function).parameters

        def without(*args: Any, **kwargs: Any) -> Any:
            for name in [name for name in kwargs if name in values and name not in known]:
                if kwargs[name] in values[name]:
                    del kwargs[name]
            return function(*args, **kwargs)

        return without

    return takes_both


def refuses(names: Mapping[str, str]) -> Wrapper:
    """Says of keywords that a function no longer takes, and that nothing stands for, what a script does instead."""

    def takes_both(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        known = inspect.signature(function).parameters

        def told(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs.keys() & names.keys() - known.keys():
                text = "%s takes no %s any more: %s"
                raise TypeError(callers.message(text % (_name(function), name, names[name])))
            return function(*args, **kwargs)

        return told

    return takes_both


def has_default(
    parameter: str, value: Any, is_meant: Callable[..., bool] | None = None, today: Any = inspect.Parameter.empty
) -> Wrapper:
    """Gives an argument its old default.

    Args:
        parameter: its name.
        value: the old default.
        is_meant: says of the arguments that stand by position whether it is meant; None: always.
        today: the later default that it replaces; where the function has another one it stays. Without: any.
    """

    def takes_both(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        signature = inspect.signature(function)
        now = getattr(signature.parameters.get(parameter), "default", value)
        is_another = today is not inspect.Parameter.empty and now != today
        if is_another or (type(now), now) == (type(value), value):
            return function

        def by_default(*args: Any, **kwargs: Any) -> Any:
            try:
                is_given = parameter in signature.bind(*args, **kwargs).arguments
            except TypeError:
                is_given = True
            if not is_given and (is_meant is None or is_meant(*args)):
                say("%s takes %s=%r here, as it did by default" % (_name(function), parameter, value))
                kwargs[parameter] = value
            return function(*args, **kwargs)

        return by_default

    return takes_both


def wrapped(wrapper: Wrapper, function: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """What a wrapper makes of a function, with its name and signature; the function itself where it stays as it is."""
    wrapping = wrapper(function, say)
    return wrapping if wrapping is function else functools.wraps(function)(wrapping)


def placed(function: Any, module: str, path: str) -> Any:
    """The same function, which pickle finds where it stands: by the path in the module."""
    if inspect.isfunction(function):
        function.__module__, function.__qualname__ = module, path
    return function


def all_of(*wrappers: Wrapper) -> Wrapper:
    """Several wrappers around a function, the first one innermost."""

    def takes_all(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        for wrapper in wrappers:
            function = wrapped(wrapper, function, say)
        return function

    return takes_all


def _name(function: Callable[..., Any]) -> str:
    return "%s.%s" % (function.__module__.partition(".")[0], getattr(function, "__qualname__", function.__name__))
