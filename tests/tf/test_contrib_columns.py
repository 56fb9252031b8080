"""Columns of features and targets, and batches of sparse elements, against what TensorFlow 1.15.5 printed."""

import importlib
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.compat.names import faces, names

pytestmark = [
    pytest.mark.skipif(names.tensorflow_1(), reason="TensorFlow 1 has the real tf.contrib"),
    pytest.mark.filterwarnings("ignore"),
]
contrib = faces.Face("")


@pytest.fixture(autouse=True)
def in_a_graph_of_its_own(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))  # contrib brings removed names back, for the process
    with tf.Graph().as_default():
        yield


def run(fetches, update=None):
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        if update is not None:
            session.run(update)
        return session.run(fetches)


def test_a_target_of_two_classes():
    target = contrib.layers.multi_class_target(2, weight_column_name="w")
    features = {"w": tf.constant([[1.0], [0.5], [2.0]])}
    logits, labels = tf.constant([[1.0], [1.0], [-1.0]]), tf.constant([[1.0], [0.0], [1.0]])
    measured = target.get_eval_ops(features, logits, labels)
    values, updates = ({name: ops[part] for name, ops in measured.items()} for part in (0, 1))
    assert run(values, updates) == pytest.approx({
        "accuracy": 0.2857143, "accuracy/baseline_target_mean": 0.6666667,
        "accuracy/threshold_0.500000_mean": 0.33333334, "auc": 0.25000012,
        "labels/actual_target_mean": 0.6666667, "labels/prediction_mean": 0.5770195,
        "loss": 1.0275475, "precision/positive_threshold_0.500000_mean": 0.5,
        "recall/positive_threshold_0.500000_mean": 0.5,
    }, rel=1e-5)  # fmt: skip
    probabilities = target.logits_to_predictions(logits, proba=True)
    np.testing.assert_allclose(run(probabilities)[0], [0.26894143, 0.7310586], rtol=1e-6)
    with pytest.raises(ValueError, match="n_classes must be > 1"):
        contrib.layers.multi_class_target(1)


def test_targets_of_more_classes_of_numbers_and_of_a_margin():
    module = importlib.import_module("npu_shim.compat.contrib.layers.target_column")
    three, svm = module.multi_class_target(3), module.binary_svm_target(weight_column_name="w")
    two = module.regression_target(label_dimension=2)
    logits = tf.constant([[1.0, 0.0, 0.0], [0.0, 2.0, 3.0]])
    margins, weights = tf.constant([[-0.7], [0.2]]), {"w": tf.constant([2.0, 10.0])}
    pair = tf.constant([[1.0, 0.0], [0.0, 2.0]])
    told = run([
        three.loss(logits, tf.constant([[2], [0]]), {}), three.logits_to_predictions(logits),
        svm.loss(margins, tf.constant([0, 1]), weights), svm.training_loss(margins, tf.constant([0, 1]), weights),
        two.loss(pair, tf.constant([[1, 0], [2, 3]]), {}), two.logits_to_predictions(pair),
    ])  # fmt: skip
    for value, wanted in zip(told, [2.4502285, [0, 2], 8.6 / 12, 8.6 / 2, 1.25, [[1, 0], [0, 2]]]):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="not supported"):
        svm.logits_to_predictions(margins, proba=True)


def test_columns_share_a_table_by_its_name_one_at_a_time_too():
    layers = contrib.layers
    ids = tf.SparseTensor([[0, 0], [1, 1], [2, 2]], [0, 1, 2], [3, 3])
    words = [layers.sparse_column_with_keys(name, ["a", "b", "c"]) for name in ("first", "second")]
    numbers = layers.sparse_column_with_keys("third", [42, 1, -1000], dtype=tf.int32)
    pair = layers.shared_embedding_columns(words, 4, shared_embedding_name="both")
    alone = layers.shared_embedding_columns([numbers], 4, shared_embedding_name="both")
    inputs = [layers.input_from_feature_columns({column: ids}, [column]) for column in (pair[0], alone[0])]
    assert len(tf.global_variables()) == 1
    first, second = run(inputs)
    np.testing.assert_array_equal(first, second)


def test_what_columns_take_and_refuse():
    columns = importlib.import_module("npu_shim.compat.contrib.feature_columns")
    plain = columns.sparse_column_with_integerized_feature("values", 10)
    features = {"values": tf.constant([1, 2, 3, 4], tf.int64)}
    plain.insert_transformed_feature(features)
    assert set(features) == {"values", plain}
    one_hot = columns.one_hot_column(columns.weighted_sparse_column(plain, "w"))
    ids = tf.SparseTensor([[0, 0], [1, 0]], tf.constant([1, 3], tf.int64), [2, 1])
    weights = tf.SparseTensor(ids.indices, tf.constant([0.5, 2.0], tf.float64), ids.dense_shape)
    shape, vectors = run([features[plain].dense_shape, one_hot._to_dnn_input_layer((ids, weights))])
    assert list(shape) == [4, 1]
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[0, 0.5] + [0] * 8, [0, 0, 0, 2] + [0] * 6]
    for keys in ([], 1, [1, 2], ["key"], [[1, 2.0]]):
        with pytest.raises(ValueError, match="hash_keys"):
            columns.sparse_column_with_hash_bucket("ids", 100, hash_keys=keys)


def test_scheduled_outputs_are_sampled_as_int32():
    sampler = contrib.seq2seq.ScheduledOutputTrainingSampler(0.5, seed=1)
    sampler.initialize(tf.zeros([3, 4, 2]), [4, 4, 4])
    samples = sampler.sample(0, tf.zeros([3, 2]), None)
    assert (sampler.sample_ids_dtype, samples.dtype) == (tf.int32, tf.int32)
    _, inputs, _ = sampler.next_inputs(0, tf.ones([3, 2]), (), samples)
    chosen, given = run([samples, inputs])
    np.testing.assert_array_equal(given, np.repeat(chosen[:, None], 2, 1))


def test_sparse_elements_wait_in_buckets():
    length = tf.train.limit_epochs(tf.constant(3), 4)
    row = tf.SparseTensor(tf.cast(length, tf.int64)[None, None], tf.cast(length, tf.float32)[None], [10])
    _, (lengths, rows) = contrib.training.bucket_by_sequence_length(length, [length, row], 2, [5])
    assert rows.shape.as_list() == [None, None]
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        batch, sparse = session.run([lengths, rows])
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=30)
    assert batch.tolist() == [3, 3]
    assert (sparse.indices.tolist(), sparse.values.tolist(), sparse.dense_shape.tolist()) == (
        [[0, 3], [1, 3]], [3.0, 3.0], [2, 10],
    )  # fmt: skip


def test_eager_layers_take_any_trainable():
    from npu_shim.compat.keras import keras_classes

    kinds = []

    class Layer:
        def __init__(self, trainable=True, name=None):
            kinds.append((type(trainable), name))
            self._trainable = trainable

    Layer.__init__ = keras_classes._takes_any_trainable(Layer.__init__)
    assert [Layer(given, name="x")._trainable for given in (None, 1, True, False)] == [None, 1, True, False]
    assert kinds == [(bool, "x")] * 4
