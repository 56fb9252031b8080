"""One walk for graphs of all kinds: each place once, no further than is asked for."""

import pytest

from npu_shim.rewriter.graph.walks import reached

EDGES = {"a": "bc", "b": "d", "c": "d", "d": "b", "e": "a"}


@pytest.mark.parametrize(
    ("starts", "places"), [("a", "acdb"), ("d", "db"), ("ea", "acdbe"), ("aa", "acdb"), ("", ""), ("e", "eacdb")]
)
def test_what_is_reached_depth_first(starts, places):
    assert "".join(reached(starts, EDGES.get)) == places


def test_a_walk_ends_with_its_reader():
    asked = []
    walk = reached("a", lambda place: asked.append(place) or EDGES[place])
    assert next(walk) == "a"
    assert asked == []
    assert next(walk) == "c"
    assert asked == ["a"]
