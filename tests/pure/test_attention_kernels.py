"""The attention kernels, interpreted on a CPU, against float64 numpy; the bits of dropout. Needs JAX."""

import dataclasses

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
attention_cases = pytest.importorskip("attention_cases")

from attention_runs import backward, backward_of, computed, forward  # noqa: E402

from npu_shim.pjrt.attention import draws, kernels  # noqa: E402


def check(number):
    spec, operands, d_out = attention_cases.random_case(number)
    actual = computed(spec, operands, d_out)
    for result in spec.results + backward_of(spec).results:
        assert (actual[result.name].shape, actual[result.name].dtype) == (result.shape, result.dtype)
    assert not attention_cases.wrong(actual, *attention_cases.reference(spec, operands, d_out)), spec


@pytest.mark.by_day("0", "2")
@pytest.mark.parametrize("number", range(4))
def test_attention_and_its_gradients(number):
    check(number)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(4, 200))
def test_attention_and_its_gradients_at_night(number):
    check(number)


def check_masked(form, number):
    spec, operands, d_out = attention_cases.masked_case(form, number)
    actual = computed(spec, operands, d_out)
    results, apart = attention_cases.reference(spec, operands, d_out, is_exact=True)
    assert not attention_cases.wrong(actual, results, apart), (spec, actual["most"].min())


@pytest.mark.by_day("added -6e4 in float16, then a third", "where -inf")
@pytest.mark.parametrize("form", attention_cases.BY_DAY)
def test_rows_that_are_masked_as_a_whole(form):
    check_masked(form, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("form", attention_cases.FORMS)
def test_rows_that_are_masked_as_a_whole_at_night(form, number):
    check_masked(form, number)


def planted(spec, operands):
    """(what is planted, the changed Spec and operands)."""
    yield "scale", dataclasses.replace(spec, scale=spec.scale * 1.1), operands
    yield "seed", spec, dict(operands, seed=operands["seed"] + np.array([0, 1], np.int32))
    yield "rate", dataclasses.replace(spec, rate=spec.rate / 2), operands
    bias = operands["bias"].copy()
    bias[..., ::2] += 2
    yield "bias", spec, dict(operands, bias=bias)
    yield "keys", spec, dict(operands, k=np.roll(operands["k"], 1, 2))


@pytest.mark.nightly  # a minute of compilations
def test_what_is_planted_is_seen():
    cases = map(attention_cases.random_case, range(999))
    spec, operands, d_out = next(case for case in cases if case[0].rate and case[0].bias and case[0].bias[3] > 8)
    expected = attention_cases.reference(spec, operands, d_out)
    right = forward(spec, operands)
    assert not attention_cases.wrong(right, *expected)
    for what, changed, given in planted(spec, operands):
        assert attention_cases.wrong({"out": forward(changed, given)["out"]}, *expected), what
    other = dict(operands, seed=operands["seed"] + np.array([1, 0], np.int32))  # the backward pass draws other bits
    off = attention_cases.wrong(backward(spec, other, d_out=d_out, **right), *expected)
    assert [line.split("[")[0] for line in off] == ["dq", "dk", "dv", "dbias"]


def test_a_row_of_which_the_first_block_is_masked():
    """The running maximum is minus infinity there, and what follows counts all the same."""
    spec, operands, d_out = attention_cases.random_case(0)
    spec = dataclasses.replace(
        spec, q=(1, 1, 16, 16), k=(1, 1, 128, 16), v=(1, 1, 128, 16), dtype="float32", rate=0.0, bias=(1, 1, 1, 128),
        bias_dtype="float32",
    )  # fmt: skip
    random = np.random.RandomState(0)
    operands = {tensor.name: random.normal(size=tensor.shape).astype("f") for tensor in spec.given}
    operands["bias"][..., :70] = -np.inf
    d_out = random.normal(size=spec.out).astype("f")
    actual = computed(spec, operands, d_out)
    assert not attention_cases.wrong(actual, *attention_cases.reference(spec, operands, d_out))


@pytest.mark.parametrize("seed", [(0, 0), (1, 2), (-5, 2**31 - 1)])
def test_draws_are_those_of_jax(seed):
    """JAX's own Threefry-2x32 is the oracle; and the kernels' version of ours draws what numpy's does."""
    from jax.extend import random

    key = np.array(seed, np.int64).astype(np.uint32)
    rows, columns = np.meshgrid(np.arange(40, dtype=np.uint32), np.arange(9, dtype=np.uint32), indexing="ij")
    counts = np.concatenate([rows.ravel(), columns.ravel()])
    expected = np.asarray(random.threefry_2x32(key, counts)).reshape(2, 40, 9)
    np.testing.assert_array_equal(draws.threefry(draws.NUMPY, key[:, None, None], (rows, columns)), expected)
    np.testing.assert_array_equal(draws.threefry(kernels.WORDS, jax.numpy.asarray(key), (rows, columns)), expected)


def test_kept_are_those_of_numpy():
    """Probabilities that are all alike, values that are unit vectors: out shows each draw of the kernel."""
    spec = attention_cases.random_case(0)[0]
    spec = dataclasses.replace(
        spec, q=(2, 3, 70, 16), k=(2, 3, 90, 16), v=(2, 3, 90, 90), dtype="float32", rate=0.3, bias=None, bias_dtype=""
    )
    zeros, seed = np.zeros(spec.q, "f"), np.array([7, -9], np.int32)
    units = np.broadcast_to(np.eye(90, dtype="f"), spec.v)
    out, *_ = kernels.attention(spec, highest=True, interpret=True)(zeros, np.zeros(spec.k, "f"), units, seed)
    np.testing.assert_array_equal(np.asarray(out) > 0, draws.kept(seed, spec.scores, spec.rate))
