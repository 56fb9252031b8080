"""What attention calls take and return, and their names."""

import dataclasses

import pytest

from npu_shim.pjrt.attention.spec import BACKWARD, FORWARD, PREFIX, Spec

PLAIN = Spec(FORWARD, (2, 4, 16, 8), (2, 4, 32, 8), (2, 4, 32, 24), "bfloat16", scale=0.125)
FULL = dataclasses.replace(
    PLAIN, bias=(2, 1, 1, 32), bias_dtype="float32", rate=0.1, hidden=(1, 1, 16, 32), fill=float("-inf")
)


def _rows(arguments):
    return ["%s %s%s" % (argument.name, argument.dtype, list(argument.shape)) for argument in arguments]


def test_a_plain_call_takes_queries_keys_and_values():
    assert _rows(PLAIN.arguments) == ["q bfloat16[2, 4, 16, 8]", "k bfloat16[2, 4, 32, 8]", "v bfloat16[2, 4, 32, 24]"]
    assert _rows(PLAIN.results) == ["out bfloat16[2, 4, 16, 24]", "most float32[2, 4, 16]", "sums float32[2, 4, 16]"]


def test_a_backward_call_takes_what_the_forward_call_took_and_gave():
    spec = dataclasses.replace(FULL, kind=BACKWARD)
    names = [argument.name for argument in spec.arguments]
    assert names == ["q", "k", "v", "bias", "hidden", "seed", "out", "most", "sums", "d_out"]
    assert _rows(spec.arguments[3:6]) == ["bias float32[2, 1, 1, 32]", "hidden int8[1, 1, 16, 32]", "seed int32[2]"]
    assert [tensor.name for tensor in spec.results] == ["dq", "dk", "dv"]
    with_bias = dataclasses.replace(spec, bias_slope=0.5)
    assert _rows(with_bias.results)[3:] == ["dbias float32[2, 1, 1, 32]"]


@pytest.mark.parametrize("spec", [PLAIN, FULL, dataclasses.replace(FULL, kind=BACKWARD, bias_slope=-1.0)])
def test_a_spec_is_what_its_text_says(spec):
    assert Spec.from_json(spec.as_json()) == spec


def test_names_differ_with_anything_that_differs():
    others = [FULL, dataclasses.replace(PLAIN, scale=0.25), dataclasses.replace(PLAIN, kind=BACKWARD)]
    names = {spec.name for spec in [PLAIN, *others]}
    assert len(names) == 4
    assert PLAIN.name == Spec.from_json(PLAIN.as_json()).name
    assert PLAIN.name.startswith(PREFIX + "forward_")


def test_a_field_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match="causal"):
        Spec.from_json(PLAIN.as_json()[:-1] + ', "causal": true}')
