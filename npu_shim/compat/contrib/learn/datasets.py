"""The part of tf.contrib.learn.datasets that reads local files. Nothing is downloaded."""

from __future__ import annotations

import collections
import csv
from typing import Any

import numpy as np

Dataset = collections.namedtuple("Dataset", ["data", "target"])
Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])


def load_csv_with_header(filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1) -> Dataset:
    """Reads a file whose first line is "rows,features,...".

    Args:
        filename: str.
        target_dtype: numpy dtype.
        features_dtype: numpy dtype.
        target_column: int, which column is the target.

    Returns:
        Dataset(data [rows, features], target [rows]).
    """
    with open(filename, newline="") as f:
        rows = csv.reader(f)
        count, depth = (int(field) for field in next(rows)[:2])
        return _split(list(rows)[:count], target_dtype, features_dtype, target_column, depth)


def load_csv_without_header(filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1) -> Dataset:
    """As `load_csv_with_header`, for a file without a header."""
    with open(filename, newline="") as f:
        return _split(list(csv.reader(f)), target_dtype, features_dtype, target_column)


def _split(
    rows: list[list[str]], target_dtype: Any, features_dtype: Any, target_column: int, depth: int | None = None
) -> Dataset:
    target = np.array([row.pop(target_column) for row in rows], dtype=target_dtype)
    data = np.array([row[:depth] for row in rows], dtype=features_dtype)
    return Dataset(data=data, target=target)
