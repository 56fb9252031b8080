"""BERT's way: flags, TFRecords, a transformer's encoder, masked words, and a TPUEstimator that runs without a TPU."""

import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

from npu_bridge.npu_init import *

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", None, "Where the model is written.")
flags.DEFINE_integer("train_batch_size", 8, "Total batch size for training.")
flags.DEFINE_float("learning_rate", 1e-3, "The initial learning rate for Adam.")
flags.DEFINE_integer("num_train_steps", 6, "Number of training steps.")
flags.DEFINE_integer("iterations_per_loop", 1, "How many steps to make in each estimator call.")
flags.DEFINE_bool("use_tpu", False, "Whether to use TPU or GPU/CPU.")

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
VOCABULARY, LENGTH, MASKED, HIDDEN, HEADS, LAYERS = 40, 16, 3, 32, 4, 2
FEATURES = {
    "input_ids": tf.FixedLenFeature([LENGTH], tf.int64),
    "input_mask": tf.FixedLenFeature([LENGTH], tf.int64),
    "masked_lm_positions": tf.FixedLenFeature([MASKED], tf.int64),
    "masked_lm_ids": tf.FixedLenFeature([MASKED], tf.int64),
}


def write_records(path):
    rng = np.random.RandomState(0)
    writer = tf.python_io.TFRecordWriter(path)
    for _ in range(64):
        ids, used = rng.randint(5, VOCABULARY, LENGTH), rng.randint(LENGTH // 2, LENGTH + 1)
        positions = np.sort(rng.choice(used, MASKED, replace=False))
        row = {"masked_lm_ids": ids[positions], "masked_lm_positions": positions}
        ids = np.where(np.isin(np.arange(LENGTH), positions), 4, ids) * (np.arange(LENGTH) < used)
        row.update(input_ids=ids, input_mask=(np.arange(LENGTH) < used).astype(int))
        example = {k: tf.train.Feature(int64_list=tf.train.Int64List(value=list(v))) for k, v in row.items()}
        writer.write(tf.train.Example(features=tf.train.Features(feature=example)).SerializeToString())
    writer.close()


def input_fn_builder(path):
    def decode(record):
        return {name: tf.to_int32(value) for name, value in tf.parse_single_example(record, FEATURES).items()}

    def input_fn(params):
        d = tf.data.TFRecordDataset(path).repeat()
        return d.apply(tf.contrib.data.map_and_batch(decode, params["batch_size"], drop_remainder=True))

    return input_fn


def dense(x, units, name, activation=None):
    return tf.layers.dense(x, units, activation, name=name, kernel_initializer=create_initializer())


def create_initializer():
    return tf.truncated_normal_initializer(stddev=0.02, seed=1)


def gelu(x):
    return x * 0.5 * (1.0 + tf.erf(x / np.sqrt(2.0).astype(np.float32)))


def layer_norm(x, name):
    return tf.contrib.layers.layer_norm(inputs=x, begin_norm_axis=-1, begin_params_axis=-1, scope=name)


def attention(x, mask):
    def heads(name):
        return tf.transpose(tf.reshape(dense(x, HIDDEN, name), [-1, LENGTH, HEADS, HIDDEN // HEADS]), [0, 2, 1, 3])

    scores = tf.matmul(heads("query"), heads("key"), transpose_b=True) / np.sqrt(HIDDEN / HEADS).astype(np.float32)
    scores += (1.0 - tf.cast(mask[:, None, None, :], tf.float32)) * -10000.0
    context = tf.matmul(tf.nn.softmax(scores), heads("value"))
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, LENGTH, HIDDEN])


def encoder(features):
    with tf.variable_scope("bert"):
        table = tf.get_variable("word_embeddings", [VOCABULARY, HIDDEN], initializer=create_initializer())
        places = tf.get_variable("position_embeddings", [LENGTH, HIDDEN], initializer=create_initializer())
        x = layer_norm(tf.gather(table, features["input_ids"]) + places, "LayerNorm")
        for layer in range(LAYERS):
            with tf.variable_scope("layer_%d" % layer):
                x = layer_norm(x + dense(attention(x, features["input_mask"]), HIDDEN, "output"), "attention_norm")
                h = dense(dense(x, 4 * HIDDEN, "intermediate", gelu), HIDDEN, "down")
                x = layer_norm(x + h, "output_norm")
    return x, table


def model_fn(features, labels, mode, params):
    x, table = encoder(features)
    chosen = tf.batch_gather(x, features["masked_lm_positions"])
    chosen = tf.reshape(layer_norm(dense(chosen, HIDDEN, "transform", gelu), "transform_norm"), [-1, HIDDEN])
    bias = tf.get_variable("output_bias", [VOCABULARY], initializer=tf.zeros_initializer())
    log_probs = tf.nn.log_softmax(tf.nn.bias_add(tf.matmul(chosen, table, transpose_b=True), bias))
    one_hot = tf.one_hot(tf.reshape(features["masked_lm_ids"], [-1]), VOCABULARY, dtype=tf.float32)
    per_example_loss = -tf.reduce_sum(log_probs * one_hot, axis=[-1])
    loss = tf.reduce_mean(per_example_loss)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = (lambda values: {"masked_lm_loss": tf.metrics.mean(values)}, [per_example_loss])
        return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=metrics)

    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(FLAGS.learning_rate, global_step, 100, end_learning_rate=0.0)
    optimizer = tf.contrib.opt.AdamWOptimizer(0.01, rate, beta1=0.9, beta2=0.999, epsilon=1e-6)
    optimizer = NPULossScaleOptimizer(optimizer, FixedLossScaleManager(loss_scale=2**7))
    if FLAGS.use_tpu:
        optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
    grads, tvars = zip(*optimizer.compute_gradients(loss, tf.trainable_variables()))
    grads, _ = tf.clip_by_global_norm(grads, clip_norm=1.0)
    train_op = optimizer.apply_gradients(list(zip(grads, tvars)), global_step=global_step)
    hooks = [PrintLoss(loss)]
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op, training_hooks=hooks)


class PrintLoss(tf.train.SessionRunHook):
    def __init__(self, loss):
        self.loss, self.steps = loss, 0

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        print("loss %d %.6f" % (self.steps, run_values.results))
        self.steps += 1


def session_config():
    config = tf.ConfigProto()
    custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
    custom_op.name = "NpuOptimizer"
    custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
    custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"
    return config


def main(_):
    tf.logging.set_verbosity(tf.logging.ERROR)
    model_dir = FLAGS.output_dir or tempfile.mkdtemp()
    records = os.path.join(tempfile.mkdtemp(), "part.tf_record")
    write_records(records)
    run_config = tf.contrib.tpu.RunConfig(
        cluster=None,
        model_dir=model_dir,
        save_checkpoints_steps=100,
        session_config=session_config(),
        tpu_config=tf.contrib.tpu.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop,
            num_shards=8,
            per_host_input_for_training=tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=model_fn,
        config=run_config,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.train_batch_size,
    )
    input_fn = input_fn_builder(records)
    estimator.train(input_fn=input_fn, max_steps=FLAGS.num_train_steps)
    result = estimator.evaluate(input_fn=input_fn, steps=2)
    assert result["global_step"] == FLAGS.num_train_steps, result


if __name__ == "__main__":
    tf.app.run()
