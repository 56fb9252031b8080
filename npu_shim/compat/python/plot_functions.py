"""Functions of Matplotlib with the arguments and names of version 3.1."""

from __future__ import annotations

import inspect
from typing import Any, Callable

Say = Callable[[str], None]
_OLD, _TODAY = "seaborn", "seaborn-v0_8"


def takes_projection(gca: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """gca(projection="3d") of a figure, or of the current one, as until Matplotlib 3.5: new axes of that kind."""
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in inspect.signature(gca).parameters.values()):
        return gca

    def of_kind(*figure: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return gca(*figure)
        from matplotlib import pyplot

        say("gca(%s=), which Matplotlib 3.6 refuses, is add_subplot here" % "=, ".join(sorted(kwargs)))
        return (figure[0] if figure else pyplot.gcf()).add_subplot(**kwargs)

    return of_kind


def takes_styles(use: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """matplotlib.style.use("seaborn-..."), as until 3.7: the style's name with v0_8 in it."""
    from matplotlib import style

    def today(name: Any) -> Any:
        if not isinstance(name, str) or not name.startswith(_OLD) or name in style.library:
            return name
        say("the style %r, which Matplotlib 3.8 dropped, is %r here" % (name, _TODAY + name[len(_OLD) :]))
        return _TODAY + name[len(_OLD) :]

    def of_style(style: Any) -> Any:
        return use([today(one) for one in style] if isinstance(style, (list, tuple)) else today(style))

    return of_style


def set_window_title(canvas: Any, title: str) -> None:
    """Gives a figure's window a title, if it has one."""
    if getattr(canvas, "manager", None) is not None:
        canvas.manager.set_window_title(title)
