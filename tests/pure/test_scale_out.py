"""The arithmetic of the scale-out page, and that the page has what the script computes."""

import importlib

import pytest

scale_out = importlib.import_module("scale_out")  # scripts/scale_out.py
LINK = {"bandwidth": 1e9, "latency": 1e-3, "inside": False}


def test_a_ring():
    # 4 ranks, 8 MB: 6 steps of 2 MB at 1 GB/s, and 6 latencies for each of 3 collectives
    assert scale_out.ring_seconds(4, 8e6, LINK, 3) == pytest.approx(6 * 2e-3 + 18e-3)
    assert scale_out.ring_seconds(1, 8e6, LINK) == 0


def test_a_level_bucket_pays_as_much_for_latency_as_for_bytes():
    size = scale_out.level_bytes(16, LINK)
    free = {**LINK, "latency": 0.0}
    assert scale_out.ring_seconds(16, size, LINK) == pytest.approx(2 * scale_out.ring_seconds(16, size, free))


def test_the_page_has_what_the_script_computes():
    page = scale_out.PAGE.read_text(encoding="utf-8")
    assert scale_out.written(page, scale_out.tables(*scale_out.read())) == page, "run scripts/scale_out.py"


def test_a_table_without_a_place_is_told():
    with pytest.raises(ValueError, match="no place for the table 'bytes'"):
        scale_out.written("nothing", {"bytes": "| a |"})


def test_a_bucket_is_as_large_as_by_default():
    from npu_shim.distributed.job import settings

    for size in (2, 8, 16, 1000):
        assert settings.bucket_bytes(size) == scale_out.bucket_bytes(size)


def test_what_the_models_train_is_what_is_compiled():
    trained, seconds, _ = scale_out.read()
    assert {model for model, _ in seconds} == set(trained)
