"""What pandas 0.25 and 1.0 had, with its old meaning: `frame.ix`, options of read_csv, lists for arrays."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Iterator

from npu_shim.compat import callers

Say = Callable[[str], None]
OF_3 = (
    "pandas %s leaves a frame as it is where a part of one of its columns is assigned to (frame['a'][0] = 1, "
    "frame.a.fillna(0, inplace=True)), its arrays are read-only, and it counts times in microseconds; pip install "
    "'pandas<3' gives what scripts of TensorFlow 1's time rely on"
)
_OF_BOTH = ("mean", "median", "std", "var", "sem", "prod")
OF_FRAMES = tuple("DataFrame." + name for name in (*_OF_BOTH, "skew", "kurt", "quantile", "corr", "cov"))
OF_GROUPS = tuple("DataFrameGroupBy." + name for name in ("sum", *_OF_BOTH))
_said: set[str] = set()


class Indexer:
    """`ix` of a frame or series: labels where the index has whole numbers, else whole numbers are positions."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __getitem__(self, key: Any) -> Any:
        return self._frame.loc[self._labels(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._frame.loc[self._labels(key)] = value

    def _labels(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return tuple(_labels(part, index) for part, index in zip(key, self._frame.axes))
        return _labels(key, self._frame.axes[0])


def _labels(key: Any, index: Any) -> Any:
    """What a key of `ix` names in an index, as `loc` takes it."""
    import numpy as np

    if index.dtype.kind in "iu":
        return key
    if isinstance(key, slice):
        ends = [end for end in (key.start, key.stop) if end is not None]
        return index[key] if ends and all(isinstance(end, (int, np.integer)) for end in ends) else key
    whole = isinstance(key, (int, np.integer)) and not isinstance(key, bool)
    several = isinstance(key, (list, np.ndarray)) and len(key) and np.asarray(key).dtype.kind in "iu"
    return index[key] if whole or several else key


def value_counts(values: Any, *args: Any, **kwargs: Any) -> Any:
    """How often each value is there, as pandas.value_counts."""
    import pandas as pd

    return pd.Series(values).value_counts(*args, **kwargs)


def value_of_frame(frame: Any, index: Any, col: Any, takeable: bool = False) -> Any:
    """One value, as DataFrame.get_value; `takeable`: index and col are positions."""
    return (frame.iat if takeable else frame.at)[index, col]


def with_value_in_frame(frame: Any, index: Any, col: Any, value: Any, takeable: bool = False) -> Any:
    """The frame, in which one value is set, as DataFrame.set_value."""
    (frame.iat if takeable else frame.at)[index, col] = value
    return frame


def value_of_series(series: Any, label: Any, takeable: bool = False) -> Any:
    """One value, as Series.get_value; `takeable`: label is a position."""
    return (series.iat if takeable else series.at)[label]


def with_value_in_series(series: Any, label: Any, value: Any, takeable: bool = False) -> Any:
    """The series, in which one value is set, as Series.set_value."""
    (series.iat if takeable else series.at)[label] = value
    return series


def has_categories(frame: Any, *_: Any) -> bool:
    """Whether a frame has a column of categories, each of which was a group, found or not."""
    return any(str(dtype) == "category" for dtype in frame.dtypes)


def has_texts(groups: Any, *_: Any) -> bool:
    """Whether a group-by has columns of numbers and others, which sums and means left out."""
    numbers = [dtype.kind in "biufc" for dtype in groups._obj_with_exclusions.dtypes if hasattr(dtype, "kind")]
    return any(numbers) and not all(numbers)


def leaves_texts(method: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """A frame's mean, corr and their like, which left out columns of texts until pandas 2."""

    def of_numbers(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except (TypeError, ValueError):
            if "numeric_only" in kwargs or not any(dtype.kind in "OSU" for dtype in self.dtypes):
                raise
        say("DataFrame.%s leaves out columns that are no numbers here, as until pandas 2" % method.__name__)
        return method(self, *args, **kwargs, numeric_only=True)

    return of_numbers


def is_pattern(strings: Any, pat: Any = None, *_: Any) -> bool:
    """Whether str.replace took a text for a regular expression: one of several characters."""
    return not isinstance(pat, str) or len(pat) > 1


def takes_lists(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """pandas.unique or factorize of a list, as until pandas 2."""

    def of_list(values: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(values, (list, tuple, range)):
            import pandas as pd

            say("pandas.%s takes lists here, which pandas 3 refuses" % function.__name__)
            values = pd.Series(values, dtype=object if any(isinstance(v, str) for v in values) else None).to_numpy()
        return function(values, *args, **kwargs)

    return of_list


def takes_a_method(fillna: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """fillna(method=), as until pandas 2: ffill and bfill."""
    if "method" in inspect.signature(fillna).parameters:  # these call it
        return fillna

    def filled(self: Any, value: Any = None, *args: Any, **kwargs: Any) -> Any:
        method = kwargs.pop("method", None)
        if method is None:
            return fillna(self, value, *args, **kwargs)
        say("fillna(method=%r), which pandas 3 refuses, is a method of its own here" % (method,))
        return (self.ffill if method in ("ffill", "pad") else self.bfill)(**kwargs)

    return filled


def takes_old_options(read_csv: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """pandas.read_csv and read_table with options that pandas 1.3 to 3.0 dropped."""

    def of_then(*args: Any, **kwargs: Any) -> Any:
        import pandas as pd

        if pd.__version__.startswith("1."):
            return read_csv(*args, **kwargs)
        _tell_of_3(say)
        dropped = [name for name in ("infer_datetime_format", "mangle_dupe_cols", "tupleize_cols") if name in kwargs]
        kwargs = {name: value for name, value in kwargs.items() if name not in dropped}
        prefix = kwargs.pop("prefix", None)
        squeezes, skips = kwargs.pop("squeeze", False), kwargs.pop("error_bad_lines", True) is False
        warns = kwargs.pop("warn_bad_lines", True)
        if skips:
            kwargs.setdefault("on_bad_lines", "warn" if warns else "skip")
        if kwargs.pop("delim_whitespace", False):
            kwargs["sep"] = r"\s+"
        table = read_csv(*args, **kwargs)
        if prefix is not None and kwargs.get("header", 0) is None and kwargs.get("names") is None:
            table.columns = ["%s%s" % (prefix, column) for column in table.columns]
        return table.squeeze("columns") if squeezes else table

    return of_then


def iterates_by_name(iterate: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """Groups of a list of one column are named by its value, as until pandas 1.5, not by a tuple of it."""

    def groups(self: Any) -> Iterator[Any]:
        single = isinstance(getattr(self, "keys", None), list) and len(self.keys) == 1
        for name, group in iterate(self):
            yield (name[0] if single and isinstance(name, tuple) and len(name) == 1 else name), group

    return groups


def tells_of_3(make: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """Says what pandas 3 does otherwise when a script makes its first table; TensorFlow and Keras import it too."""

    def telling(*args: Any, **kwargs: Any) -> Any:
        _tell_of_3(say)
        return make(*args, **kwargs)

    return telling


def takes_dates(getitem: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """frame["2019-01"]: the rows of that time where no column is called so, as until pandas 1."""

    def of_date(self: Any, key: Any) -> Any:
        try:
            return getitem(self, key)
        except KeyError:
            if not isinstance(key, str) or self.index.dtype.kind != "M":
                raise
        rows = self.loc[key]
        say("frame[%r], which pandas 2 refuses for rows, is frame.loc[%r] here" % (key, key))
        return rows

    return of_date


def _tell_of_3(say: Say) -> None:
    import pandas as pd

    if pd.__version__.startswith("3.") and not _said and callers.by_script():
        _said.add(OF_3)
        say(OF_3 % pd.__version__)


def keeps_objects(module: Any, say: Say) -> None:
    """Lets pandas 3 read and make columns of text as objects, as until pandas 2."""
    if int(module.__version__.partition(".")[0]) >= 3:
        module.set_option("future.infer_string", False)
