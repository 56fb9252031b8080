"""tensorflow.examples.tutorials.mnist.input_data: reads MNIST's four IDX files from a folder; nothing is downloaded."""

from __future__ import annotations

import collections
import gzip
import os
import struct
from typing import Any

import numpy as np

Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])
FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
DEFAULT_SOURCE_URL = ""


class DataSet:
    """Images and labels that come in batches.

    Args:
        images: uint8 [count, height, width, 1], float32 in [0, 1] afterwards unless `dtype` is uint8.
        labels: [count] or, one hot, [count, classes].
        fake_data: bool, batches of ones and zeros.
        one_hot: bool, of fake labels.
        dtype: "uint8" or "float32", or one of TensorFlow's dtypes.
        reshape: whether images are [count, height * width].
        seed: int, of the shuffling; None for the default graph's, see `_sow`.
    """

    def __init__(
        self,
        images: Any,
        labels: Any,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = "float32",
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        dtype = np.dtype(getattr(dtype, "as_numpy_dtype", dtype)).name
        if dtype not in ("uint8", "float32"):
            raise TypeError("Invalid image dtype %r, expected uint8 or float32" % dtype)
        _sow(seed)
        self._fake, self._one_hot = fake_data, one_hot
        if fake_data:
            images, labels = np.ones([10000, 28, 28, 1], np.uint8), np.zeros([10000], np.int64)
            labels = dense_to_one_hot(labels, 10) if one_hot else labels
        if len(images) != len(labels):
            raise ValueError("images.shape: %s labels.shape: %s" % (images.shape, labels.shape))
        if reshape:
            images = images.reshape(len(images), -1)
        self._images = images.astype(np.float32) * np.float32(1.0 / 255.0) if dtype == "float32" else images
        self._labels = labels
        self._epochs_completed = 0
        self._index_in_epoch = 0

    @property
    def images(self) -> Any:
        """The images, in the order of the running epoch."""
        return self._images

    @property
    def labels(self) -> Any:
        """The labels, in the same order."""
        return self._labels

    @property
    def num_examples(self) -> int:
        """Int."""
        return len(self._images)

    @property
    def epochs_completed(self) -> int:
        """Int."""
        return self._epochs_completed

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> tuple[Any, Any]:
        """Returns the next `batch_size` (images, labels); a batch may reach from one epoch into the next."""
        if self._epochs_completed == 0 and self._index_in_epoch == 0 and shuffle:
            self._shuffle()
        start = self._index_in_epoch
        if start + batch_size <= self.num_examples:
            self._index_in_epoch += batch_size
            return self._images[start : self._index_in_epoch], self._labels[start : self._index_in_epoch]
        rest = self._images[start:], self._labels[start:]
        self._epochs_completed += 1
        if shuffle:
            self._shuffle()
        self._index_in_epoch = batch_size - len(rest[0])
        new = self._images[: self._index_in_epoch], self._labels[: self._index_in_epoch]
        return np.concatenate([rest[0], new[0]]), np.concatenate([rest[1], new[1]])

    def _shuffle(self) -> None:
        order = np.arange(self.num_examples)
        np.random.shuffle(order)
        self._images, self._labels = self._images[order], self._labels[order]


def _sow(seed: int | None) -> None:
    """Seeds NumPy for a data set, as TensorFlow 1.15's does: what the script seeds later goes before that.

    Args:
        seed: as given; None for the default graph's, and, where that has none, for one of the system's.
    """
    from tensorflow.compat.v1 import get_seed

    of_graph, own = get_seed(seed)
    np.random.seed(of_graph if seed is None else own)


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = "float32",
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = DEFAULT_SOURCE_URL,
) -> Datasets:  # fmt: skip
    """Reads MNIST from a folder.

    Args:
        train_dir: str, the folder of the four files, each with or without ".gz".
        fake_data: bool, no files at all.
        one_hot: bool.
        dtype: "uint8" or "float32".
        reshape: whether images are [count, height * width].
        validation_size: int, how many of the training images are for validation.
        seed: int, of the shuffling.
        source_url: unused.

    Returns:
        Datasets(train, validation, test).

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file is no IDX file, or `validation_size` is out of range.
    """
    options = {"dtype": dtype, "reshape": reshape, "seed": seed}
    if fake_data:
        return Datasets(*(DataSet([], [], fake_data=True, one_hot=one_hot, **options) for _ in range(3)))
    images, labels, test_images, test_labels = (_read(train_dir, file) for file in FILES)
    if one_hot:
        labels, test_labels = dense_to_one_hot(labels, 10), dense_to_one_hot(test_labels, 10)
    if not 0 <= validation_size <= len(images):
        raise ValueError("Validation size should be between 0 and %d. Received: %d." % (len(images), validation_size))
    held = slice(None, validation_size)
    rest = slice(validation_size, None)
    return Datasets(
        train=DataSet(images[rest], labels[rest], **options),
        validation=DataSet(images[held], labels[held], **options),
        test=DataSet(test_images, test_labels, **options),
    )


def load_mnist(train_dir: str = "MNIST-data") -> Datasets:
    """`read_data_sets` with its defaults."""
    return read_data_sets(train_dir)


def dense_to_one_hot(labels_dense: Any, num_classes: int) -> Any:
    """Labels [count] -> float64 [count, num_classes]."""
    return np.eye(num_classes)[labels_dense]


def extract_images(f: Any) -> Any:
    """Reads a gzipped IDX file of images from an open file: uint8 [count, height, width, 1]."""
    return _parse(gzip.decompress(f.read()), getattr(f, "name", "images"))


def extract_labels(f: Any, one_hot: bool = False, num_classes: int = 10) -> Any:
    """Reads a gzipped IDX file of labels from an open file: uint8 [count]."""
    labels = _parse(gzip.decompress(f.read()), getattr(f, "name", "labels"))
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def _read(folder: str, name: str) -> Any:
    for path, opener in ((os.path.join(folder, name + ".gz"), gzip.open), (os.path.join(folder, name), open)):
        if os.path.isfile(path):
            with opener(path, "rb") as f:
                return _parse(f.read(), path)
    raise FileNotFoundError(
        "npu_shim: MNIST is not downloaded: put %s into '%s', with or without .gz" % (", ".join(FILES), folder)
    )


def _parse(data: bytes, path: str) -> Any:
    """IDX: two zero bytes, a type (8 is uint8), the number of dimensions, each a big-endian int32, then the bytes."""
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError("npu_shim: '%s' is not an IDX file of bytes" % path)
    ndims = data[3]
    shape = struct.unpack(">%dI" % ndims, data[4 : 4 + 4 * ndims])
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * ndims)
    if values.size != np.prod(shape):
        raise ValueError("npu_shim: '%s' has %d values, its header says %s" % (path, values.size, shape))
    return values.reshape((*shape, 1) if ndims == 3 else shape)
