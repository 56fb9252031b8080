"""Input through queues: files -> string_input_producer -> TFRecordReader -> batch queues, with a Coordinator."""

import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

from npu_bridge.npu_init import *

# mixed precision; with the argument float32 the script computes what it says, in TensorFlow's own dtypes
FLOAT32 = sys.argv[1:] == ["float32"]
BATCH, FEATURES, CLASSES, EXAMPLES, STEPS = 20, 16, 4, 60, 6


def write_records(path, rng):
    centres = np.eye(CLASSES, FEATURES, dtype=np.float32) * 2
    with tf.python_io.TFRecordWriter(path) as writer:
        for _ in range(EXAMPLES):
            label = rng.randint(CLASSES)
            values = (centres[label] + 0.3 * rng.randn(FEATURES)).astype(np.float32)
            feature = {
                "values": tf.train.Feature(bytes_list=tf.train.BytesList(value=[values.tobytes()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def read(paths, num_epochs):
    names = tf.train.string_input_producer(paths, num_epochs=num_epochs, shuffle=True, seed=1)
    _, record = tf.TFRecordReader().read(names)
    features = {"values": tf.FixedLenFeature([], tf.string), "label": tf.FixedLenFeature([], tf.int64)}
    parsed = tf.parse_single_example(record, features)
    values = tf.decode_raw(parsed["values"], tf.float32)
    values.set_shape([FEATURES])
    return values, tf.cast(parsed["label"], tf.int32)


def logits_of(x):
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE, initializer=tf.glorot_uniform_initializer(seed=1)):
        h = tf.layers.dense(x, 32, tf.nn.relu, name="hidden")
        return tf.layers.dense(h, CLASSES, name="logits")


tf.logging.set_verbosity(tf.logging.ERROR)
tf.set_random_seed(1)
folder, rng = tempfile.mkdtemp(), np.random.RandomState(0)
paths = [os.path.join(folder, "part-%d.tfrecord" % part) for part in range(3)]
for path in paths:
    write_records(path, rng)

with tf.name_scope("training_input"):  # one thread, first in first out: the order is that of the seed
    x, y = tf.train.batch(read(paths, None), BATCH, num_threads=1, capacity=4 * BATCH)
with tf.name_scope("evaluation_input"):
    queue = tf.train.shuffle_batch(
        read(paths, 1), BATCH, capacity=5 * BATCH, min_after_dequeue=BATCH, allow_smaller_final_batch=True
    )
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits_of(x)))
optimizer = NPUDistributedOptimizer(tf.train.AdagradOptimizer(0.1))
train_op = optimizer.minimize(loss, global_step=tf.train.create_global_step())
hits = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits_of(queue[0]), 1, output_type=tf.int32), queue[1]), tf.int32))
size = tf.shape(queue[1])[0]

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = b"must_keep_origin_dtype" if FLOAT32 else b"allow_mix_precision"
custom_op.parameter_map["npu_shim_profile"].s = b"gpu" if FLOAT32 else b"ascend910"

with tf.Session(config=config) as sess:
    sess.run(tf.group(tf.global_variables_initializer(), tf.local_variables_initializer()))
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess=sess, coord=coord)
    for i in range(STEPS):
        value, _ = sess.run([loss, train_op])
        print("loss %d %.6f" % (i, value))
    right = total = 0
    try:
        while not coord.should_stop():
            counted = sess.run([hits, size])
            right, total = right + counted[0], total + counted[1]
    except tf.errors.OutOfRangeError:
        pass
    finally:
        coord.request_stop()
    coord.join(threads)
assert total == 3 * EXAMPLES, total
