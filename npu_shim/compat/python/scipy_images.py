"""The image functions of scipy.misc, which SciPy 1.0 to 1.3 removed: what they computed, with Pillow.

Arrays are (height, width) or have three or four channels on one axis. What is no uint8 is stretched: its smallest value
becomes 0 and its largest 255, whatever they were; scripts rely on it when they save images in [-1, 1].
"""

from __future__ import annotations

from typing import Any, Sequence

_EFFECTS = {  # Pillow's names
    **{name: name.upper() for name in ("blur", "contour", "detail", "emboss", "smooth", "smooth_more", "sharpen")},
    **{"edge_enhance": "EDGE_ENHANCE", "edge_enhance_more": "EDGE_ENHANCE_MORE", "find_edges": "FIND_EDGES"},
}
_FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "cubic": 3}  # Pillow's numbers


def bytescale(data: Any, cmin: Any = None, cmax: Any = None, high: int = 255, low: int = 0) -> Any:
    """Stretches an array from [cmin, cmax], by default its own range, to [low, high] as uint8; uint8 stays as it is.

    Raises:
        ValueError: not 0 <= low <= high <= 255, or cmax < cmin.
    """
    import numpy as np

    data = np.asarray(data)
    if data.dtype == np.uint8:
        return data
    if not 0 <= low <= high <= 255:
        raise ValueError("low and high are %s and %s, expected 0 <= low <= high <= 255" % (low, high))
    cmin = data.min() if cmin is None else cmin
    cmax = data.max() if cmax is None else cmax
    if cmax < cmin:
        raise ValueError("cmax is %s, expected at least cmin, %s" % (cmax, cmin))
    scale = float(high - low) / (float(cmax - cmin) or 1)
    return (((data - cmin) * scale + low).clip(low, high) + 0.5).astype(np.uint8)


def toimage(
    arr: Any,
    high: int = 255,
    low: int = 0,
    cmin: Any = None,
    cmax: Any = None,
    pal: Any = None,
    mode: str | None = None,
    channel_axis: int | None = None,
) -> Any:
    """The image of Pillow that shows an array.

    Raises:
        ValueError: a complex array, or one without three or four channels that is not two-dimensional; a palette or a
            mode that does not fit it.
    """
    import numpy as np
    from PIL import Image

    data = np.asarray(arr)
    if np.iscomplexobj(data):
        raise ValueError("Cannot convert a complex-valued array.")
    if pal is not None:
        raise ValueError("pal is not here: call Image.putpalette of what toimage returns")
    if data.ndim == 2 and mode == "F":
        return Image.fromarray(data.astype(np.float32))
    stretched = bytescale(data, cmin, cmax, high, low)
    if data.ndim == 2:
        if mode not in (None, "L"):
            raise ValueError("mode is %r, expected None, 'L' or 'F' for a two-dimensional array" % mode)
        return Image.fromarray(stretched)
    axis = _channels(data.shape, channel_axis)
    stretched = np.ascontiguousarray(np.moveaxis(stretched, axis, -1))
    mode = mode or ("RGB" if data.shape[axis] == 3 else "RGBA")
    if len(mode) != data.shape[axis] and (mode, data.shape[axis]) != ("YCbCr", 3):
        raise ValueError("mode is %r, expected one of %d channels" % (mode, data.shape[axis]))
    height, width = stretched.shape[:2]
    return Image.frombytes(mode, (width, height), stretched.tobytes())


def _channels(shape: Sequence[int], axis: int | None) -> int:
    """The axis with the channels: the one given, or the first of length 3, else the first of length 4."""
    axes = [axis] if axis is not None else [shape.index(n) for n in (3, 4) if n in shape]
    if len(shape) != 3 or not axes or shape[axes[0]] not in (3, 4):
        raise ValueError("'arr' does not have a suitable array shape for any mode: %s" % (shape,))
    return axes[0]


def fromimage(im: Any, flatten: bool = False, mode: str | None = None) -> Any:
    """The array of an image of Pillow, (height, width) or (height, width, channels); flatten makes it gray floats."""
    import numpy as np

    if mode is None and im.mode == "P":
        mode = "RGBA" if "transparency" in im.info else "RGB"
    if mode is not None and mode != im.mode:
        im = im.convert(mode)
    if flatten:
        im = im.convert("F")
    elif im.mode == "1":
        im = im.convert("L")  # Pillow's own arrays of "1" were wrong
    return np.array(im)


def imread(name: str, flatten: bool = False, mode: str | None = None) -> Any:
    """The array of an image file, uint8 or, with flatten, float32."""
    from PIL import Image

    with Image.open(name) as image:
        return fromimage(image, flatten, mode)


def imsave(name: Any, arr: Any, format: str | None = None) -> None:
    """Writes an array as an image file; its format is that of the name's end unless it is given."""
    toimage(arr, channel_axis=2).save(name, format)


def imresize(arr: Any, size: Any, interp: str = "bilinear", mode: str | None = None) -> Any:
    """The array resized, uint8: to a percentage (int), by a factor (float), or to (height, width).

    Raises:
        KeyError: interp is none of nearest, lanczos, bilinear, bicubic, cubic.
    """
    import numpy as np

    image = toimage(arr, mode=mode)
    if np.ndim(size) == 0:
        factor = size / 100.0 if isinstance(size, (int, np.integer)) else size
        size = tuple((np.array(image.size) * factor).astype(int))
    else:
        size = (size[1], size[0])
    return fromimage(image.resize(tuple(map(int, size)), resample=_FILTERS[interp]))


def imfilter(arr: Any, ftype: str) -> Any:
    """The array filtered, uint8: blur, contour, detail, edge_enhance, emboss, find_edges, smooth, sharpen.

    Raises:
        ValueError: ftype is none of these, nor one with _more.
    """
    from PIL import ImageFilter

    if ftype not in _EFFECTS:
        raise ValueError("Unknown filter type %r, expected one of %s" % (ftype, ", ".join(sorted(_EFFECTS))))
    return fromimage(toimage(arr).filter(getattr(ImageFilter, _EFFECTS[ftype])))


def imrotate(arr: Any, angle: float, interp: str = "bilinear") -> Any:
    """The array turned counter-clockwise by an angle in degrees, uint8, in its own size."""
    return fromimage(toimage(arr).rotate(angle, resample=_FILTERS[interp]))
