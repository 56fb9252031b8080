"""Whole plans of small graphs of every kind, reasons and causes included, against tests/golden/plans.txt."""

import planned
import pytest

CASES = list(planned.cases())
PART = 10


@pytest.mark.parametrize("begin", range(0, len(CASES), PART))
def test_plans(begin):
    for settings, text, lines in CASES[begin : begin + PART]:
        assert planned.planned(settings, text) == lines, "%s\n%s" % (settings, text)


def test_the_order_of_the_nodes_does_not_matter():
    for settings, text, lines in CASES:
        if not lines[0].startswith("error: "):  # of several nodes that cannot stay as they are any may be named
            assert planned.planned(settings, " ".join(reversed(text.split(" ")))) == lines, text


def test_the_file_has_cases_of_every_kind():
    text = planned.GOLDEN.read_text()
    for reason in (
        "loop_low", "loop_float32", "loop_adds", "container_low", "container_float32", "moved", "late", "cube",
        "already_rounded", "asked", "scope", "narrowed", "raised", "no_kernel",
    ):  # fmt: skip
        assert "," + reason in text, reason
