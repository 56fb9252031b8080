import numpy as np
import pytest

from npu_shim.checkpoint import ranges
from npu_shim.checkpoint.ranges import RangeReport, cast


def bfloat16_reference(value):
    """The nearest of the two bfloat16 neighbours, ties to the even one, by exact arithmetic on float64."""
    low = np.uint32(np.float32(value).view(np.uint32) & 0xFFFF0000)
    high = np.uint32(low + 0x10000)
    down, up = (float(np.uint32(b).view(np.float32)) for b in (low, high))
    if not np.isfinite(up):  # beyond the largest: rounds as if the next power of two were there
        up = np.copysign(2.0**128, down)
    gap_down, gap_up = abs(float(value) - down), abs(up - float(value))
    pick = low if gap_down < gap_up or (gap_down == gap_up and not (low >> 16) & 1) else high
    return pick >> 16


def test_bfloat16_rounds_to_nearest_even():
    rng = np.random.RandomState(0)
    patterns = rng.randint(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32)
    patterns[:2000] = (patterns[:2000] & 0xFFFF0000) | 0x8000  # ties
    values = patterns.view(np.float32)
    values = values[np.isfinite(values)]
    got, _ = cast(values, "float32", "bfloat16")
    assert got.tolist() == [bfloat16_reference(v) for v in values]


def test_limits_are_those_of_the_dtypes():
    for dtype in (np.float16, np.float32):
        info = np.finfo(dtype)
        assert ranges.LIMITS[np.dtype(dtype).name] == (float(info.max), float(info.tiny))
    largest, smallest = (np.float32(limit).view(np.uint32) for limit in ranges.LIMITS["bfloat16"])
    assert (largest, smallest) == (0x7F7F0000, 0x00800000)


def test_what_is_not_finite_stays_so():
    odd = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001], np.uint32).view(np.float32)  # NaNs that truncation would lose
    values = np.concatenate([odd, np.float32([np.inf, -np.inf])])
    for to in ("float16", "bfloat16"):
        wide, _ = cast(cast(values, "float32", to, clamp=True)[0], to, "float32")
        assert np.isnan(wide).tolist() == [True] * 3 + [False] * 2
        assert wide[3:].tolist() == [np.inf, -np.inf]


def test_float16_is_what_numpy_makes():
    values = np.random.RandomState(1).randn(3, 1000).astype(np.float32) * np.float32(1e3)
    got, report = cast(values, "float32", "float16")
    assert np.array_equal(got, values.astype(np.float16))
    assert got.shape == values.shape
    assert report.relative_error <= 2.0**-11


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_widening_is_exact_and_comes_back(dtype):
    patterns = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    held = patterns.view(np.float16) if dtype == "float16" else patterns
    wide, _ = cast(held, dtype, "float32")
    finite = np.isfinite(wide)
    back, report = cast(wide, "float32", dtype)
    assert np.array_equal(back.view(np.uint16)[finite], patterns[finite])
    assert (report.overflow, report.flushed, report.relative_error) == (0, 0, 0)


def test_the_report_counts_each_loss():
    values = np.float32(
        [1, 65504, 65519.99, 65520, -1e9, np.inf, np.nan, 0, 2.0**-25, 2.0**-24, 3e-5, 2.0**-14, 1.0005])
    _, report = cast(values, "float32", "float16")
    after = np.float32(np.float16(1.0005))
    assert report == RangeReport(
        count=13, overflow=2, largest=1e9, flushed=1, subnormal=2, non_finite=2,
        relative_error=float(np.float32(max(abs(after - values[-1]) / values[-1], (values[2] - 65504) / values[2]))))


def test_clamping_touches_finite_values_only():
    values = np.float32([70000, -70000, np.inf, -np.inf, 1])
    got, report = cast(values, "float32", "float16", clamp=True)
    assert got.tolist() == [65504, -65504, np.inf, -np.inf, 1]
    assert report.overflow == 2
    got, report = cast(np.float32([3.4e38]), "float32", "bfloat16", clamp=True)
    assert (got.tolist(), report.overflow) == ([0x7F7F], 1)


def test_bfloat16_to_float16_rounds_once():
    wide = np.float32([65536, 1, 2.0**-20])
    held, _ = cast(wide, "float32", "bfloat16")
    got, report = cast(held, "bfloat16", "float16")
    assert got.tolist() == [np.inf, 1, 2.0**-20]
    assert (report.overflow, report.subnormal) == (1, 1)


def test_chunks_do_not_change_the_result(monkeypatch):
    values = (np.random.RandomState(2).randn(1000) * 1e5).astype(np.float32)
    whole = cast(values, "float32", "float16")
    monkeypatch.setattr(ranges, "CHUNK", 7)
    parts = cast(values, "float32", "float16")
    assert np.array_equal(whole[0], parts[0])
    assert whole[1] == parts[1]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors(shape):
    got, report = cast(np.ones(shape, np.float32), "float32", "float16")
    assert got.shape == shape
    assert report.count == np.ones(shape).size


def test_reports_add_up():
    one = RangeReport(count=2, overflow=1, largest=5.0, relative_error=0.5)
    assert one + RangeReport(count=3, flushed=1, largest=7.0, relative_error=0.25) == RangeReport(
        count=5, overflow=1, largest=7.0, flushed=1, relative_error=0.5)
