"""tf.contrib.learn.datasets: what reads local files. Nothing is downloaded."""

import collections
import csv

import numpy as np

Dataset = collections.namedtuple("Dataset", ["data", "target"])
Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])


def load_csv_with_header(filename, target_dtype, features_dtype, target_column=-1):
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


def load_csv_without_header(filename, target_dtype, features_dtype, target_column=-1):
    """As `load_csv_with_header`, for a file of rows only."""
    with open(filename, newline="") as f:
        return _split(list(csv.reader(f)), target_dtype, features_dtype, target_column)


def _split(rows, target_dtype, features_dtype, target_column, depth=None):
    target = np.array([row.pop(target_column) for row in rows], dtype=target_dtype)
    data = np.array([row[:depth] for row in rows], dtype=features_dtype)
    return Dataset(data=data, target=target)
