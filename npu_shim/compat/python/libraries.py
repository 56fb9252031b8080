"""Removed or changed functions of Pillow, SciPy, pandas and others, as scripts of 2019 call them.

`aliases` decides when each is used. Nothing here imports a library before a script does.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import warnings
from typing import Any, Callable, Iterator

from npu_shim.rewriter.errors import ConfigError, nearest

PICKLES = "NPU_SHIM_PICKLES"  # environment variable: whether numpy.load may read pickled objects unasked
UNIT = "\x1f"  # ASCII's separator of units, which no table in text has


def font_size(font: Any, text: Any, *args: Any, **kwargs: Any) -> tuple[int, int]:
    """(width, height) in pixels of a text in a font of Pillow, the space above it included; as FreeTypeFont.getsize."""
    left, _, right, bottom = font.getbbox(text, *args, **kwargs)
    return right - left, bottom


def rgb_bytes(canvas: Any) -> bytes:
    """The pixels of an Agg canvas of Matplotlib as bytes, three a pixel; as FigureCanvasAgg.tostring_rgb."""
    import numpy as np

    return np.asarray(canvas.buffer_rgba())[..., :3].tobytes()


def close_file(reader: Any) -> None:
    """Closes what a CDF reader of cdflib reads, which later versions do when the reader goes; as CDF.close."""
    if hasattr(getattr(reader, "_f", None), "close"):  # a reader of a failed download has none
        reader._f.close()


def with_rows(
    frame: Any, other: Any, ignore_index: bool = False, verify_integrity: bool = False, sort: bool = False
) -> Any:
    """A frame or series of pandas followed by the rows of another, or of a dict or list; as DataFrame.append.

    Raises:
        TypeError: a dict or an unnamed series is to be a row, and ignore_index is False.
    """
    import pandas as pd

    if frame.ndim == 2 and isinstance(other, (dict, pd.Series)):
        row = pd.Series(other)
        if row.name is None and not ignore_index:
            raise TypeError("a row without a name can be appended only with ignore_index=True")
        other = row.to_frame().T.infer_objects()
    elif frame.ndim == 2 and isinstance(other, list) and not all(hasattr(row, "ndim") for row in other):
        other = pd.DataFrame(other)
    others = other if isinstance(other, (list, tuple)) else [other]
    return pd.concat([frame, *others], ignore_index=ignore_index, verify_integrity=verify_integrity, sort=sort)


def as_matrix(frame: Any, columns: Any = None) -> Any:
    """The values of a frame of pandas, or of some of its columns, as an array; as DataFrame.as_matrix."""
    return (frame if columns is None else frame[columns]).to_numpy()


def to_numpy_matrix(graph: Any, *args: Any, **kwargs: Any) -> Any:
    """The adjacency matrix of a graph of NetworkX as numpy.matrix."""
    import numpy as np

    return np.asmatrix(importlib.import_module("networkx").to_numpy_array(graph, *args, **kwargs))


def takes_a_loader(load: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """yaml.load and yaml.load_all without Loader, as PyYAML 5.1 to 5.4 took it: FullLoader."""
    if inspect.signature(load).parameters["Loader"].default is not inspect.Parameter.empty:
        return load

    def with_full_loader(stream: Any, Loader: Any = None) -> Any:
        if Loader is None:
            say("yaml.%s without Loader, which PyYAML 6.0 refuses, takes FullLoader here" % load.__name__)
            Loader = importlib.import_module("yaml").FullLoader
        return load(stream, Loader)

    return with_full_loader


def takes_enum_words(init: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """Absl's EnumParser with one string for all values, which it took until 0.9: the words in it are the values."""

    def with_words(self: Any, enum_values: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(enum_values, str):
            words = re.findall(r"[\w.\-]+", enum_values)
            say("enum_values is the string %r, which absl 0.9 refuses: it means %s here" % (enum_values, words))
            enum_values = words
        init(self, enum_values, *args, **kwargs)

    return with_words


def takes_multichannel(similarity: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """Skimage's structural_similarity with multichannel, and without data_range for floats, as until 0.18."""

    def with_multichannel(
        im1: Any, im2: Any, *args: bool, multichannel: Any = False, data_range: Any = None, **kwargs: Any
    ) -> Any:
        import numpy as np

        if args:
            kwargs["win_size"] = args[0]
        if multichannel:
            say("structural_similarity(multichannel=True), which scikit-image 0.21 dropped, is channel_axis=-1 here")
            kwargs["channel_axis"] = -1
        if data_range is None and np.issubdtype(np.asarray(im1).dtype, np.floating):
            data_range = 2.0  # floats were taken to be in [-1, 1]
        return similarity(im1, im2, data_range=data_range, **kwargs)

    return similarity if "multichannel" in inspect.signature(similarity).parameters else with_multichannel


def takes_any_kind(label2rgb: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """Skimage's label2rgb: any kind but "overlay" meant "avg" until 0.15, and label 0 was no background until 0.18."""

    def of_kind(*args: Any, **kwargs: Any) -> Any:
        kind = kwargs.get("kind", "overlay")
        if kind not in ("overlay", "avg"):
            say("label2rgb(kind=%r), which scikit-image 0.16 refuses, is kind='avg' here" % (kind,))
            kwargs["kind"] = "avg"
        if len(args) < 5 and "bg_label" not in kwargs:
            say("label2rgb without bg_label, which is 0 since scikit-image 0.19, takes -1 here")
            kwargs["bg_label"] = -1
        return label2rgb(*args, **kwargs)

    return of_kind


def takes_truths(transform: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """Skimage's resize, rescale, rotate or warp of an array of bools with an order: of 0s and 1s, as until 0.18."""
    import numpy as np

    takes = inspect.signature(transform)

    def of_truths(image: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(image, "dtype", None) == np.bool_ and takes.bind(image, *args, **kwargs).arguments.get("order"):
            say("%s of bools with an order, which scikit-image 0.19 refuses, is of 0s and 1s here" % transform.__name__)
            image = image.astype(float)
        return transform(image, *args, **kwargs)

    return of_truths


def takes_bytes(fromstring: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """numpy.fromstring of raw bytes, as until NumPy 2.2: a copy of what numpy.frombuffer reads."""
    import numpy as np

    if _version(np) < (2, 3):
        return fromstring

    def of_bytes(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "", **kwargs: Any) -> Any:
        if sep:
            return fromstring(string, dtype, count, sep=sep, **kwargs)
        say("numpy.fromstring of bytes, which NumPy 2.3 refuses, is a copy of numpy.frombuffer here")
        raw = string.encode("latin1") if isinstance(string, str) else string
        return np.frombuffer(raw, dtype, count).copy()

    return of_bytes


def takes_long_delimiters(loadtxt: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """numpy.loadtxt with a delimiter of several characters, as until NumPy 1.22: `delimiter="::"`."""
    import numpy as np

    if _version(np) < (1, 23):
        return loadtxt
    bind = inspect.signature(loadtxt).bind

    def of_fields(*args: Any, **kwargs: Any) -> Any:
        given = bind(*args, **kwargs).arguments
        delimiter = given.get("delimiter")
        text = delimiter.decode("latin1") if isinstance(delimiter, bytes) else delimiter
        if not isinstance(text, str) or len(text) < 2:
            return loadtxt(*args, **kwargs)
        say("numpy.loadtxt takes the delimiter %r here, which NumPy 1.23 refuses" % text)
        encoding = given.get("encoding", "bytes")
        given["fname"] = _divided(given["fname"], text, "latin1" if encoding == "bytes" else encoding)
        return loadtxt(**{**given, "delimiter": UNIT})

    return of_fields


def _divided(lines: Any, delimiter: str, encoding: str | None) -> Iterator[str]:
    """The lines of a file, or of what gives lines, with UNIT as delimiter."""
    if isinstance(lines, (str, os.PathLike)):
        opened = importlib.import_module("numpy.lib._datasource").open  # as loadtxt does: .gz, .bz2, a URL
        with opened(os.fspath(lines), "rt", encoding=encoding) as file:
            yield from _divided(file, delimiter, encoding)
        return
    for line in lines:
        text = line.decode(encoding or "latin1") if isinstance(line, bytes) else line
        yield text.replace(delimiter, UNIT)


def _version(library: Any) -> tuple[int, ...]:
    return tuple(map(int, library.__version__.split(".")[:2]))


def explains_pickles(load: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """numpy.load of a file of pickled objects, which needed no allow_pickle=True until NumPy 1.16.2.

    A pickle can run any code as it is read, so the user has to allow it: NPU_SHIM_PICKLES=on.
    """
    from numpy import ndarray

    def of_objects(file: Any, mmap_mode: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not args and "allow_pickle" not in kwargs and _pickles_are_read():
            loaded = load(file, mmap_mode, allow_pickle=True, **kwargs)
            # an archive reads its arrays when they are asked for
            if loaded.dtype.hasobject if isinstance(loaded, ndarray) else not hasattr(loaded, "files"):
                say("numpy.load reads pickled objects here, as until NumPy 1.16.2: %s is on" % PICKLES)
            return loaded
        try:
            return load(file, mmap_mode, *args, **kwargs)
        except ValueError as reason:
            if args or "allow_pickle" in kwargs:
                raise
            raise _without_pickles(reason, getattr(file, "name", file)) from reason

    return of_objects


def explains_pickles_inside(getitem: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """NpzFile.__getitem__, which reads an array when it is asked for: of pickled objects, as `explains_pickles`."""

    def read(self: Any, key: str) -> Any:
        try:
            return getitem(self, key)
        except ValueError as reason:
            raise _without_pickles(reason, key) from reason

    return read


def _without_pickles(reason: ValueError, name: Any) -> ValueError:
    """The error with its remedy, if pickled objects are its reason; else the error."""
    if "allow_pickle=False" not in str(reason):
        return reason
    return ValueError(
        "'%s' holds pickled objects, which numpy.load read unasked until NumPy 1.16.2, or is no file of "
        "NumPy's. A pickle can run any code as it is read: if you trust the file, set %s=on" % (name, PICKLES)
    )


def _pickles_are_read() -> bool:
    """Whether the user allows it; raises ConfigError for a value that is neither on nor off."""
    switch = os.environ.get(PICKLES, "off")
    if switch not in ("on", "off", ""):
        raise ConfigError("%s is '%s', expected on or off%s" % (PICKLES, switch, nearest(switch, ["on", "off"])))
    return switch == "on"


def array_of(values: Any) -> Any:
    """An array of what is in a list."""
    import numpy as np

    return np.asarray(values)


def takes_positions(*names: str) -> Callable[[Callable[..., Any], Callable[[str], None]], Callable[..., Any]]:
    """Lets a function take arguments by position that later versions take by keyword only: `names`, in their order."""

    def takes_both(function: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        if inspect.Parameter.KEYWORD_ONLY not in kinds:
            return function
        own = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)

        def by_position(*args: Any, **kwargs: Any) -> Any:
            more = dict(zip(names, args[own:]))
            if len(more) < len(args) - own or more.keys() & kwargs.keys():
                return function(*args, **kwargs)  # whose error says what is wrong
            if more:
                which = (function.__module__ + "." + function.__name__, ", ".join(more))
                say("%s takes %s by position here, which its library no longer takes" % which)
            return function(*args[:own], **kwargs, **more)

        return by_position

    return takes_both


def takes_iterators(stack: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """A function of NumPy that stacks what an iterator gives, as until NumPy 1.23: `np.stack(map(f, images))`."""

    def of_iterator(*args: Any, **kwargs: Any) -> Any:
        if args and hasattr(args[0], "__iter__") and not hasattr(args[0], "__getitem__"):
            say("numpy.%s takes iterators here, which NumPy 1.24 refuses" % stack.__name__)
            args = (list(args[0]), *args[1:])
        return stack(*args, **kwargs)

    return of_iterator


def takes_ragged(array: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """numpy.array, asarray or asanyarray of what had no common shape, as until NumPy 1.23.

    Rows of different lengths are an array of lists. With a dtype they were an error then too, but an array of one
    element among numbers was a number: `np.array([1.0, np.array([5.0])], np.float32)`.
    """

    def of_rows(*args: Any, **kwargs: Any) -> Any:
        try:
            return array(*args, **kwargs)
        except ValueError as reason:
            if "inhomogeneous" not in str(reason):
                raise
            dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
            rest = {name: value for name, value in kwargs.items() if name != "dtype"}
            objects = array(*args[:1], dtype=object, **rest)
            given = objects if dtype is None else array(_with_numbers(objects, dtype, reason), *args[1:], **kwargs)
        what = "rows of different lengths or shapes" if dtype is None else "numbers and arrays of one element"
        means = "an array of objects" if dtype is None else "an array of numbers"
        say("numpy.%s of %s, which NumPy 1.24 refuses, is %s here" % (array.__name__, what, means))
        return given

    return of_rows


def _with_numbers(objects: Any, dtype: Any, refusal: ValueError) -> Any:
    """An array of objects, some of them arrays of one element, in a dtype; raises `refusal` for what has no number."""
    import numpy as np

    kind = np.dtype(dtype).kind
    if kind not in "biufcV":
        raise refusal
    numbers = np.empty(objects.shape, object)
    try:
        for place, element in enumerate(objects.flat):
            numbers.flat[place] = _number(element, kind)
        return numbers.astype(dtype)
    except TypeError:
        raise refusal from None


def _number(element: Any, kind: str) -> Any:
    """What NumPy made of one element of an array of numbers; raises TypeError for a sequence of others than one."""
    import numpy as np

    if isinstance(element, np.ndarray):
        [number] = np.asarray(element).reshape(-1) if element.size == 1 else [None]
        if number is None or (np.iscomplexobj(number) and kind not in "cV"):
            raise TypeError
        return number
    if isinstance(element, (list, tuple)):
        raise TypeError
    return element


def measures_ragged(measure: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """numpy.ndim, shape or size of rows of different lengths: of the array of lists that they were until NumPy 1.23."""

    def of_rows(a: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return measure(a, *args, **kwargs)
        except ValueError as reason:
            if "inhomogeneous" not in str(reason):
                raise
        import numpy as np

        say("numpy.%s takes rows of different lengths here, which NumPy 1.24 refuses" % measure.__name__)
        return measure(np.array(a, dtype=object), *args, **kwargs)

    return of_rows


def gives_matrices(adjacency_matrix: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """networkx.adjacency_matrix as a sparse matrix, as until 2.8: of a sparse array `*` means another product."""

    def as_sparse_matrix(*args: Any, **kwargs: Any) -> Any:
        from scipy import sparse

        with warnings.catch_warnings():  # NetworkX 2.8 announces what is patched here
            warnings.simplefilter("ignore", FutureWarning)
            matrix = adjacency_matrix(*args, **kwargs)
        if sparse.isspmatrix(matrix):
            return matrix
        say("networkx.adjacency_matrix, a sparse array since NetworkX 3.0, is a sparse matrix here")
        return sparse.csr_matrix(matrix)

    return as_sparse_matrix


class _Cast:
    def __getitem__(self, dtype: Any) -> Callable[[Any], Any]:
        import numpy as np

        return lambda x: np.asarray(x).astype(dtype)


cast = _Cast()  # numpy.cast: cast[dtype](x) is an array of that dtype


class output:
    """librosa.output."""

    @staticmethod
    def write_wav(path: str, y: Any, sr: int, norm: bool = False) -> None:
        """Writes a WAV file of the samples y, (n,) or (2, n), at sr Hz; with norm, floats are scaled to [-1, 1]."""
        import numpy as np
        from scipy.io import wavfile

        y = np.asarray(y)
        if norm and np.issubdtype(y.dtype, np.floating):
            y = y / max(np.abs(y).max(), np.finfo(y.dtype).tiny)
        wavfile.write(path, sr, y.T if y.ndim == 2 and y.shape[0] == 2 else y)
