"""A script as NVIDIA's DeepLearningExamples write one for TensorFlow 1, on two ranks of `npu-shim launch`."""

import json

import forked
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.skipif(
    tuple(map(int, tf.__version__.split(".")[:2])) > (2, 15), reason="TensorFlow 2.16 and later have no Estimator"
)
# as their BERT: an Estimator, an optimizer of its own with weight decay behind clipping by the norm of the reduced
# gradients, and lookups that travel as dense tensors
SCRIPT = """
import json
import re
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd

flags = tf.flags
flags.DEFINE_integer("train_batch_size", 8, "of a rank")
flags.DEFINE_string("output_dir", None, "")
FLAGS = flags.FLAGS


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    def __init__(self, learning_rate, decay, exclude, name="AdamWeightDecayOptimizer"):
        super(AdamWeightDecayOptimizer, self).__init__(False, name)
        self.learning_rate, self.decay, self.exclude = tf.identity(learning_rate, name="learning_rate"), decay, exclude

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            if grad is None or param is None:
                continue
            grad = tf.convert_to_tensor(grad)  # one process reduces nothing, so sparse_as_dense does nothing
            name = re.match("^(.*):\\\\d+$", param.name).group(1)
            m, v = [tf.get_variable(name + suffix, param.shape.as_list(), trainable=False,
                                    initializer=tf.zeros_initializer()) for suffix in ("/adam_m", "/adam_v")]
            next_m, next_v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * tf.square(grad)
            update = next_m / (tf.sqrt(next_v) + 1e-2)
            if not any(re.search(each, name) for each in self.exclude):
                update += self.decay * param
            assignments += [param.assign(param - self.learning_rate * update), m.assign(next_m), v.assign(next_v)]
        return tf.group(*assignments, name=name)


def create_optimizer(loss):
    step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(0.05, step, 8, 0.0, power=1.0)
    optimizer = AdamWeightDecayOptimizer(rate, 0.01, ["LayerNorm", "bias"])
    optimizer = hvd.DistributedOptimizer(optimizer, sparse_as_dense=True, compression=hvd.Compression.none)
    variables = tf.trainable_variables()
    pairs = optimizer.compute_gradients(loss, variables)
    pairs = [(g, v) for g, v in pairs if g is not None]
    grads, variables = list(zip(*pairs))
    finite = tf.reduce_all([tf.reduce_all(tf.is_finite(g)) for g in grads])
    clipped, _ = tf.clip_by_global_norm(
        grads, clip_norm=1.0, use_norm=tf.cond(finite, lambda: tf.global_norm(grads), lambda: tf.constant(1.0)))
    train = optimizer.apply_gradients(list(zip(clipped, variables)), global_step=step)
    with tf.control_dependencies([train]):  # theirs may count before the rate is read, which no order forbids
        return step.assign(tf.cond(finite, lambda: step + 1, lambda: tf.identity(step)))


def model_fn(features, labels, mode):
    start = tf.truncated_normal_initializer(stddev=0.2, seed=1 + hvd.rank())  # the broadcast makes them equal
    with tf.variable_scope("bert", initializer=start):
        embedding = tf.get_variable("word_embeddings", [20, 8])
        h = tf.reduce_mean(tf.nn.embedding_lookup(embedding, features["input_ids"]), 1)
        h = tf.contrib.layers.layer_norm(h, begin_norm_axis=-1, begin_params_axis=-1, scope="LayerNorm")
        h = tf.layers.dense(h, 8, tf.tanh, kernel_initializer=start, name="pooler")
        logits = tf.layers.dense(h, 4, kernel_initializer=start, name="output")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=create_optimizer(loss))


def input_fn():
    r = np.random.RandomState(0)
    ids = r.randint(0, 20, [96, 5]).astype("i4")
    data = tf.data.Dataset.from_tensor_slices(({"input_ids": ids}, ids[:, 0] % 4))
    return data.shard(hvd.size(), hvd.rank()).repeat().batch(FLAGS.train_batch_size, drop_remainder=True)


class Told(tf.train.SessionRunHook):
    def end(self, session):
        told = {v.op.name: session.run(v).tolist() for v in tf.trainable_variables()}
        step = int(session.run(tf.train.get_global_step()))
        print("SEEN", json.dumps({"rank": hvd.rank(), "step": step, "weights": told}), flush=True)


def main(_):
    hvd.init()
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    run = tf.estimator.RunConfig(
        model_dir=FLAGS.output_dir if hvd.rank() == 0 else None, session_config=config,
        save_checkpoints_steps=4 if hvd.rank() == 0 else None, keep_checkpoint_max=1, log_step_count_steps=2)
    estimator = tf.estimator.Estimator(model_fn=model_fn, config=run)
    estimator.train(input_fn, hooks=[hvd.BroadcastGlobalVariablesHook(0), Told()], max_steps=6)


if __name__ == "__main__":
    flags.mark_flag_as_required("output_dir")
    tf.app.run()
"""


@pytest.mark.slow
@pytest.mark.nightly  # test_horovod.py has two ranks of a session
def test_two_ranks_pretrain_as_one_process_on_the_whole_batch(tmp_path):
    (tmp_path / "run_pretraining.py").write_text(SCRIPT)
    commands = [
        ("npu-shim run run_pretraining.py --output_dir alone --train_batch_size 16", tmp_path),
        ("npu-shim launch -n 2 run_pretraining.py --output_dir both --train_batch_size 8", tmp_path),
    ]
    seen = []
    for done in forked.run(commands):
        assert done.status == 0, done.output
        seen.append([json.loads(line.split("SEEN ")[1]) for line in done.output.splitlines() if "SEEN {" in line])
    [alone], both = seen
    assert sorted(one["rank"] for one in both) == [0, 1]
    assert {one["step"] for one in (alone, *both)} == {6}
    assert both[0]["weights"] == both[1]["weights"]
    for name, wanted in alone["weights"].items():
        np.testing.assert_allclose(both[0]["weights"][name], wanted, rtol=1e-4, atol=1e-5, err_msg=name)
    saved = tf.train.latest_checkpoint(str(tmp_path / "both"))
    kernel = tf.train.load_checkpoint(saved).get_tensor("bert/pooler/kernel")
    np.testing.assert_array_equal(kernel, np.float32(both[0]["weights"]["bert/pooler/kernel"]))
