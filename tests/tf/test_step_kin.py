"""Rules of ops that have no kernel for CPUs, beside the kernels of ops that compute the same."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_cases import Draw  # noqa: E402

from npu_shim.step import interpreter  # noqa: E402
from npu_shim.step.ops import TABLE  # noqa: E402


def _segments(kind):
    """As of numbers that need no order."""

    def cases(draw):
        for dtype in (np.float32, np.float64, np.int32, np.int8):
            x = draw.array((6, 2), np.dtype(dtype), odd=False)
            given = x, np.sort(draw.random.randint(0, 5, 6)).astype(np.int32), np.int32(7)
            yield {}, given, lambda given=given: [getattr(tf.raw_ops, "UnsortedSegment" + kind)(
                data=given[0], segment_ids=given[1], num_segments=given[2])]  # fmt: skip

    return cases


def _largest(draw):
    """TensorFlow 2 has no TopK, which graphs of the first TensorFlow have."""
    for dtype in (np.float32, np.float16, np.int32, np.uint8):
        x = draw.array((3, 6), np.dtype(dtype), -2, 2, odd=False)
        yield {"k": 4}, [x], lambda x=x: list(tf.raw_ops.TopKV2(input=x, k=4))


def _ctc(draw):
    """The blank comes first in the second version, last in the first one."""
    logits = draw.array((6, 3, 5), np.dtype(np.float32), odd=False)
    indices = np.int64([[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [2, 1], [2, 2]])
    labels, lengths = np.int32([2, 2, 3, 4, 4, 1, 2]), np.int32([6, 4, 4])
    attrs = {"preprocess_collapse_repeated": False, "ctc_merge_repeated": True,
             "ignore_longer_outputs_than_inputs": False}  # fmt: skip

    def kin():
        loss, gradient = tf.raw_ops.CTCLoss(inputs=np.roll(logits, -1, 2), labels_indices=indices,
                                            labels_values=labels - 1, sequence_length=lengths)  # fmt: skip
        return [loss, tf.roll(gradient, 1, 2)]

    yield attrs, [logits, indices, labels, lengths], kin


KIN = {
    **{"Segment%sV2" % kind: _segments(kind) for kind in ("Max", "Min", "Prod", "Sum")},
    "TopK": _largest,
    "CTCLossV2": _ctc,
}


@pytest.mark.parametrize("op", sorted(KIN))
def test_rules_compute_what_the_kernels_of_their_kin_do(op):
    for attrs, inputs, kin in KIN[op](Draw(0)):
        with tf.Graph().as_default(), tf.Session() as session:
            wanted = session.run(kin())
        with interpreter.traced_as_tensorflow():
            traced = [jax.numpy.asarray(value) for value in inputs[: 1 if op != "CTCLossV2" else None]]
            results = TABLE[op].apply(attrs, *traced, *inputs[len(traced) :])
        for got, want in zip(results if isinstance(results, tuple) else [results], wanted):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)
