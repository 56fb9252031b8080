"""Different ids of a table's rows, found without a sort: what Unique gives, in its order. Needs JAX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from npu_shim.step import uniques  # noqa: E402
from npu_shim.step.lookups import MOST  # noqa: E402
from npu_shim.step.values import Rows  # noqa: E402

ROWS = 9


def expected(ids):
    """(values, places, counts) in the order in which they first come."""
    values, first, places, counts = np.unique(ids, True, True, True)
    order = np.argsort(first)
    return values[order], np.argsort(order)[places], counts[order]


def uniques_of(ids, there=None):
    """The same of a traced program for a table of ROWS rows, of the first `there` ids."""
    attrs, shapes = {MOST: ROWS, "out_idx": np.dtype("i4")}, []

    def run(ids, there):
        given = ids if there is None else Rows(ids, there)
        values, places, counts = uniques.unique(attrs, given)
        shapes.append(values.array.shape)
        places = places if there is None else places.array
        return values.array, values.count, places, counts.array

    program = jax.jit(run)
    assert "stablehlo.sort" not in program.lower(ids, there).as_text()
    values, count, places, counts = map(np.asarray, program(ids, there))
    assert shapes[0] == (min(len(ids), ROWS),)
    return values[:count], places[:there], counts[:count]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("size", [2, 7, 40])
def test_ids_have_the_order_in_which_they_come(size, dtype):
    with jax.enable_x64(True):
        for seed in range(3):
            ids = np.random.RandomState(seed).randint(0, ROWS, size).astype(dtype)
            for actual, wanted in zip(uniques_of(ids), expected(ids)):
                np.testing.assert_array_equal(actual, wanted)


def test_of_rows_only_those_count_that_are_there():
    ids = np.array([3, 5, 3, 8, 1, 1], np.int32)
    for there in range(1, 7):
        for actual, wanted in zip(uniques_of(ids, there), expected(ids[:there])):
            np.testing.assert_array_equal(actual, wanted)


def test_an_id_out_of_range_is_none_of_the_rows():
    ids = np.array([8, 9, 2, -1, 8, 70], np.int32)
    values, places, counts = uniques_of(ids)
    np.testing.assert_array_equal(values, [8, 9, 2])
    np.testing.assert_array_equal(places, [0, 1, 2, 1, 0, 1])
    np.testing.assert_array_equal(counts, [2, 3, 1])


def test_a_large_table_is_not_looked_through_for_a_few_ids():
    attrs, ids = {MOST: 10**6, "out_idx": np.dtype("i4")}, np.array([4, 999, 4], np.int32)
    text = jax.jit(lambda ids: uniques.unique(attrs, ids)[1]).lower(ids).as_text()
    assert "1000001" not in text
