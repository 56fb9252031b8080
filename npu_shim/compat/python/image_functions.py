"""Functions of scikit-image, Pillow and OpenCV with the names, defaults and results that they had in 2019."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

from npu_shim.compat import callers

Say = Callable[[str], None]


def circle(r: float, c: float, radius: float, shape: Any = None) -> Any:
    """Rows and columns of a filled circle, as skimage.draw.circle."""
    from skimage import draw

    return draw.disk((r, c), radius, shape=shape)


def register_translation(src_image: Any, target_image: Any, upsample_factor: int = 1, space: str = "real") -> Any:
    """(shifts, error, phase difference) of two images, as skimage.feature.register_translation."""
    from skimage import registration

    options = {"upsample_factor": upsample_factor, "space": space, "normalization": None}
    return registration.phase_cross_correlation(src_image, target_image, **options)


def has_colours(image: Any, *_: Any) -> bool:
    """Whether an image is (height, width, 3): its last axis was taken for colours."""
    return len(getattr(image, "shape", ())) == 3 and image.shape[-1] == 3


def is_grey(image: Any, *_: Any) -> bool:
    """Whether an image is (height, width): it was taken to have no colours, whatever was said."""
    return len(getattr(image, "shape", ())) == 2


def takes_grey(rgb2gray: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """skimage.color.rgb2gray of an image that is gray, which it gave back until 0.19."""
    import numpy as np

    def of_any(rgb: Any, *args: Any, **kwargs: Any) -> Any:
        if np.ndim(rgb) == 2:
            say("skimage.color.rgb2gray of two dimensions, which scikit-image 0.19 refuses, is the image itself here")
            return np.ascontiguousarray(rgb)
        return rgb2gray(rgb, *args, **kwargs)

    return of_any


def takes_neighbors(label: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """skimage.measure.label, whose second argument was `neighbors`, 4 or 8, until 0.18."""

    def of_neighbors(label_image: Any, *args: Any, **kwargs: Any) -> Any:
        neighbors = args[0] if args else kwargs.pop("neighbors", None)
        kwargs.update(zip(("background", "return_num", "connectivity"), args[1:]))
        if neighbors in (4, 8):
            say("skimage.measure.label(neighbors=%d) is connectivity=%d here" % (neighbors, 1 + (neighbors == 8)))
            kwargs["connectivity"] = 1 if neighbors == 4 else label_image.ndim
        elif neighbors is not None:
            kwargs["background"] = neighbors
        return label(label_image, **kwargs)

    return of_neighbors


def takes_least_sizes(name: str) -> Callable[[Callable[..., Any], Say], Callable[..., Any]]:
    """skimage.morphology.remove_small_objects or _holes: what is smaller than `name` goes, as until 0.25."""

    def takes_both(remove: Callable[..., Any], say: Say) -> Callable[..., Any]:
        if "max_size" not in inspect.signature(remove).parameters:
            return remove

        def from_size(ar: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs.update(zip((name, "connectivity"), args))
            if name in kwargs:
                say("%s(%s=n), which scikit-image 0.26 dropped, is max_size=n - 1 here" % (remove.__name__, name))
                kwargs["max_size"] = kwargs.pop(name) - 1
            return remove(ar, **kwargs)

        return from_size

    return takes_both


def takes_old_angles(min_area_rect: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """cv2.minAreaRect, whose angle was from -90 to below 0 until OpenCV 4.5.1, and is above 0 up to 90 since."""
    if _is_patched_twice(min_area_rect):
        return min_area_rect

    @functools.wraps(min_area_rect)
    def rectangle(points: Any) -> Any:
        centre, (width, height), angle = min_area_rect(points)
        if angle <= 0:
            return centre, (width, height), angle
        say("cv2.minAreaRect's angle is from -90 to 0 here, as until OpenCV 4.5.1; its sides change places with it")
        return (centre, (width, height), -90.0) if angle == 90 else (centre, (height, width), angle - 90)

    return rectangle


def _is_patched_twice(function: Callable[..., Any]) -> bool:
    return hasattr(function, "__wrapped__")  # OpenCV loads itself twice


def gives(change: Callable[[Any], Any]) -> Callable[[Callable[..., Any], Say], Callable[..., Any]]:
    """A function of OpenCV's whose results have another form since 4.5: `change` gives them the old one."""

    def gives_old(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        if _is_patched_twice(function):
            return function

        @functools.wraps(function)
        def changed(*args: Any, **kwargs: Any) -> Any:
            return change(function(*args, **kwargs))

        return changed

    return gives_old


def lists_in(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple with lists in place of the tuples in it: contours."""
    return tuple(list(value) if isinstance(value, tuple) else value for value in values)


def column(values: Any) -> Any:
    """An array (n,) as (n, 1); others as they are."""
    return values.reshape(-1, 1) if getattr(values, "ndim", 0) == 1 else values


def columns_in(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple with arrays (n, 1) in place of those (n,)."""
    return tuple(map(column, values))


def takes_scalars(number: Callable[[Any], Any]) -> Callable[[Callable[..., Any], Say], Callable[..., Any]]:
    """A function of OpenCV's whose points and sizes may hold NumPy's numbers, as in Python 3.7: `number` of each."""

    def takes_both(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        if _is_patched_twice(function):
            return function
        import numpy as np

        def plain(value: Any) -> Any:
            if isinstance(value, tuple) and any(isinstance(one, np.generic) for one in value):
                return tuple(number(one) if isinstance(one, np.generic) else one for one in value)
            return value

        @functools.wraps(function)
        def of_numbers(*args: Any, **kwargs: Any) -> Any:
            return function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

        return of_numbers

    return takes_both


def text_size(draw: Any, text: str, font: Any = None, *args: Any, **kwargs: Any) -> Any:
    """(width, height) in pixels of a text that Pillow draws; as ImageDraw.textsize, and multiline_textsize."""
    left, _, right, bottom = draw.multiline_textbbox((0, 0), text, font, *args, **kwargs)
    return round(right - left), round(bottom)


def takes_boxes(method: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """A method of Pillow's images whose box may be an array, as until 9.5."""

    def of_array(self: Any, box: Any = None, *args: Any, **kwargs: Any) -> Any:
        return method(self, tuple(box) if hasattr(box, "tolist") else box, *args, **kwargs)

    return of_array


def gives_bitmaps(load_default: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """PIL.ImageFont.load_default, whose font was one of bits until 10.0."""
    from PIL import ImageFont

    bitmaps = getattr(ImageFont, "load_default_imagefont", None)
    if bitmaps is None:
        return load_default

    def load(size: Any = None) -> Any:
        if size is not None:
            return load_default(size)
        say("ImageFont.load_default() is the font of Pillow until 10.0 here")
        return bitmaps()

    return load


def gives_masks(peak_local_max: Callable[..., Any], say: Say) -> Callable[..., Any]:
    """skimage.feature.peak_local_max with `indices`, as until 0.19: False gives a mask."""
    import numpy as np

    if "indices" in inspect.signature(peak_local_max).parameters:
        return peak_local_max

    def peaks(image: Any, *args: Any, indices: bool = True, **kwargs: Any) -> Any:
        places = peak_local_max(image, *args, **kwargs)
        if indices:
            return places
        say("peak_local_max(indices=False), which scikit-image 0.20 refuses, gives a mask here")
        mask = np.zeros(np.shape(image), bool)
        mask[tuple(places.T)] = True
        return mask

    return peaks


def tells_of_filters(old: str) -> Callable[[Callable[..., Any], Say], Callable[..., Any]]:
    """A function of Pillow's without a filter, which was NEAREST until 6.2 and is another one since 7.0: a line."""

    def takes_none(function: Callable[..., Any], say: Say) -> Callable[..., Any]:
        def resized(*args: Any, **kwargs: Any) -> Any:
            if len(args) < 3 and not {"resample", "method"} & kwargs.keys() and callers.by_script():
                say("%s without a filter is Image.BICUBIC since Pillow 7.0; it was Image.NEAREST" % old)
            return function(*args, **kwargs)

        return resized

    return takes_none
