"""What training scripts do with tf.contrib: slim, TPUEstimator, HParams, summaries, data, images, predictors."""

import gzip
import struct
import sys

import contrib_cases
import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.compat.modules import mnist
from npu_shim.compat.names import exports, faces, names
from npu_shim.rewriter import tf_internals

pytestmark = [
    pytest.mark.skipif(names.tensorflow_1(), reason="TensorFlow 1 has the real tf.contrib"),
    pytest.mark.filterwarnings("ignore"),
]
slim_needed = pytest.mark.skipif(
    exports.file_of("tf_slim") is None, reason="tf-slim is not installed: npu-shim[contrib]"
)
estimator_needed = pytest.mark.skipif(not hasattr(tf, "estimator"), reason="this TensorFlow comes without Estimator")
contrib = faces.Face("")


@pytest.fixture(autouse=True)
def finders_as_before(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))  # contrib brings removed names back, for the process


@slim_needed
def test_slim_nets():
    with tf.Graph().as_default():
        nets = faces.get("slim.nets")
        x = tf.zeros([1, 64, 64, 3])
        with contrib.slim.arg_scope(nets.resnet_v1.resnet_arg_scope()):
            logits, ends = nets.resnet_v1.resnet_v1_50(x, 10, is_training=False)
        assert logits.shape.as_list()[-1] == 10
        assert "resnet_v1_50/block4" in ends
        assert {v.op.name for v in tf.global_variables()} >= {"resnet_v1_50/conv1/BatchNorm/gamma"}


def test_hparams():
    params = contrib.training.HParams(batch_size=32, rate=0.1, name="a", layers=[1, 2], use=True)
    params.parse("batch_size=8,rate=1,layers=[3,4],name=x y,use=false")
    assert params.values() == {"batch_size": 8, "rate": 1.0, "name": "x y", "layers": [3, 4], "use": False}
    assert params.override_from_dict({"rate": 2}).rate == 2.0
    assert contrib.training.HParams(**params.values()).parse_json(params.to_json()).values() == params.values()
    assert "rate" in params
    assert params.get("no", 3) == 3
    wrong = {"batch_size=1.5": "Could not parse hparam 'batch_size'", "nope=1": "Unknown hyperparameter",
             "rate=1,rate=2": "Multiple assignments", "layers=1": "Must pass a list", "rate": "Malformed"}  # fmt: skip
    for text, problem in wrong.items():
        with pytest.raises(ValueError, match=problem):
            params.parse(text)
    with pytest.raises(ValueError, match="reserved"):
        params.add_hparam("parse", 1)


@estimator_needed
def test_tpu_estimator_runs_as_a_plain_one(tmp_path):
    tpu, summary = contrib.tpu, contrib.summary

    def model_fn(features, labels, mode, params):
        assert params["batch_size"] == 4
        prediction = tf.layers.dense(features, 1)
        loss = tf.losses.mean_squared_error(labels, prediction)
        optimizer = tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1)) if params["use_tpu"] else (
            tf.train.GradientDescentOptimizer(0.1))  # fmt: skip

        def metrics(labels, prediction):
            return {"mse": tf.metrics.mean_squared_error(labels, prediction)}

        def scaffold():
            return tf.train.Scaffold()

        def host_call(step, loss):
            with summary.create_file_writer(str(tmp_path / "host")).as_default(), summary.always_record_summaries():
                summary.scalar("host loss", tf.reduce_mean(loss), step=tf.reduce_min(step))
            return summary.all_summary_ops()

        on_host = [tf.reshape(value, [1]) for value in (tf.train.get_global_step(), loss)]
        return tpu.TPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()),
            eval_metrics=(metrics, [labels, prediction]), scaffold_fn=scaffold, host_call=(host_call, on_host),
        )  # fmt: skip

    def input_fn(params):
        data = (np.ones([8, 2], np.float32), np.full([8, 1], 3.0, np.float32))
        return tf.data.Dataset.from_tensor_slices(data).repeat().batch(params["batch_size"], drop_remainder=True)

    config = tpu.RunConfig(model_dir=str(tmp_path), tpu_config=tpu.TPUConfig(iterations_per_loop=5, num_shards=1))
    estimator = tpu.TPUEstimator(
        model_fn, config=config, params={"use_tpu": False}, use_tpu=False, train_batch_size=4, eval_batch_size=4
    )
    estimator.train(input_fn, max_steps=20)
    result = estimator.evaluate(input_fn, steps=2)
    assert result["global_step"] == 20
    assert result["mse"] < 0.1
    values = scalars(tmp_path / "host")["host_loss"]
    assert len(values) == 20 + 2  # of the evaluation, too
    assert values[19][1] < values[0][1]


def scalars(folder):
    """{tag: [(step, value)]} of the event files of a folder, in the order in which they were begun."""
    events: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.iterdir()):
        for event in tf.train.summary_iterator(str(file)):
            for value in event.summary.value:
                events.setdefault(value.tag, []).append((event.step, value.simple_value))
    return events


def test_summaries_are_written_when_recording_is_on(tmp_path):
    summary = contrib.summary
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        writer = summary.create_file_writer(str(tmp_path))
        with writer.as_default():
            summary.scalar("nothing_records", 1.0)
            with summary.always_record_summaries():
                summary.scalar("loss", 2.5)
            with summary.record_summaries_every_n_global_steps(2):
                summary.scalar("even", tf.cast(step, tf.float32))
        with sessions.started() as session:
            with writer.as_default():
                summary.initialize(session=session)
            for _ in range(4):
                session.run(summary.all_summary_ops())
                session.run(tf.assign_add(step, 1))
            session.run(writer.close())
    assert scalars(tmp_path) == {"loss": [(i, 2.5) for i in range(4)], "even": [(0, 0.0), (2, 2.0)]}


def test_images():
    picture = contrib_cases.values("p", 1, 5, 5, 2)
    with tf.Graph().as_default(), tf.Session() as session:
        turned, moved, same, half = session.run([
            contrib.image.rotate(picture, np.pi / 2), contrib.image.translate(picture, [1.0, 0.0]),
            contrib.image.dense_image_warp(picture, tf.zeros([1, 5, 5, 2])),
            contrib.resampler.resampler(picture, tf.constant([[[1.5, 2.0], [-1.0, 0.0], [4.5, 1.0]]])),
        ])  # fmt: skip
    np.testing.assert_array_equal(turned[0], np.rot90(picture[0]))
    np.testing.assert_array_equal(moved[0, :, 1:], picture[0, :, :-1])
    assert not moved[0, :, 0].any()
    np.testing.assert_allclose(same, picture, rtol=1e-6)
    middle = (picture[0, 2, 1] + picture[0, 2, 2]) / 2
    # half a pixel behind the edge, half of it is zeros
    np.testing.assert_allclose(half[0], [middle, [0, 0], picture[0, 1, 4] / 2], rtol=1e-6)


@estimator_needed
def test_a_predictor_of_an_estimator_with_and_without_a_checkpoint(tmp_path, caplog):
    def model_fn(features, labels, mode):
        w = tf.get_variable("w", [], initializer=tf.constant_initializer(2.0))
        y = features["x"] * w
        train = tf.group(tf.assign(w, 5.0), tf.assign_add(tf.train.get_global_step(), 1))
        return tf.estimator.EstimatorSpec(mode, {"y": y}, tf.reduce_sum(y), train)

    def receive():
        x = tf.placeholder(tf.float32, [None])
        return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    predict = contrib.predictor.from_estimator(estimator, receive)
    assert predict({"x": [3.0]})["y"].tolist() == [6.0]
    assert "there is no checkpoint in %s" % tmp_path in caplog.text
    caplog.clear()
    estimator.train(lambda: ({"x": tf.ones([1])}, tf.ones([1])), steps=1)
    assert contrib.predictor.from_estimator(estimator, receive)({"x": [3.0]})["y"].tolist() == [15.0]
    assert "no checkpoint" not in caplog.text
    with pytest.raises(ValueError, match="output_key must be one of"):
        contrib.predictor.from_estimator(estimator, receive, output_key="z")


def test_predictor(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], "x")
        w = tf.get_variable("w", initializer=3.0)
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"y": x * w})
    predict = contrib.predictor.from_saved_model(str(tmp_path / "saved"))
    assert predict({"x": [1.0, 2.0]})["y"].tolist() == [3.0, 6.0]
    with pytest.raises(ValueError, match="unexpected keys in input_dict: z"):
        predict({"z": [1.0]})


def test_vocabulary_processor():
    process = contrib.learn.preprocessing.VocabularyProcessor(4)
    rows = np.array(list(process.fit_transform(["a b c", "b d it's e f"])))
    assert rows.tolist() == [[1, 2, 3, 0], [2, 4, 5, 6]]
    assert list(process.reverse([[2, 5]])) == ["b it's"]
    assert len(process.vocabulary_) == 8
    assert next(process.transform(["z a"])).tolist() == [0, 1, 0, 0]


def idx(path, array, zipped):
    header = struct.pack(">HBB%dI" % array.ndim, 0, 8, array.ndim, *array.shape)
    with (gzip.open if zipped else open)(str(path), "wb") as f:
        f.write(header + array.astype(np.uint8).tobytes())


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_reads_local_files(tmp_path, zipped):
    end = ".gz" if zipped else ""
    for file, count in zip(mnist.FILES, (20, 20, 6, 6)):
        shape = (count, 28, 28) if "images" in file else (count,)
        idx(tmp_path / (file + end), np.arange(np.prod(shape)).reshape(shape) % 10, zipped)
    data = mnist.read_data_sets(str(tmp_path), one_hot=True, validation_size=5, seed=3)
    assert [part.num_examples for part in data] == [15, 5, 6]
    assert data.train.images.shape == (15, 784)
    assert data.train.images.dtype == np.float32
    assert data.train.images.max() == np.float32(9 / 255)
    assert data.validation.labels.argmax(1).tolist() == [0, 1, 2, 3, 4]
    seen = np.concatenate([data.train.next_batch(6)[1] for _ in range(5)])
    assert data.train.epochs_completed == 1
    assert seen[:15].argmax(1).tolist() != list(range(5, 15)) + list(range(5))
    assert sorted(seen[:15].argmax(1)) == sorted(list(range(5, 10)) + list(range(10)))


def test_mnist_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="not downloaded: put train-images-idx3-ubyte"):
        mnist.read_data_sets(str(tmp_path))
    (tmp_path / mnist.FILES[0]).write_bytes(b"<html>")
    with pytest.raises(ValueError, match="not an IDX file"):
        mnist.read_data_sets(str(tmp_path))


def test_kmeans_finds_the_centers_of_three_heaps():
    rng = np.random.RandomState(0)
    centers = np.float32([[0, 0], [10, 0], [0, 10]])
    points = (centers[np.arange(90) % 3] + rng.uniform(-1, 1, [90, 2])).astype("f")
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 2])
        distance = contrib.factorization.SQUARED_EUCLIDEAN_DISTANCE
        start = contrib.factorization.KMEANS_PLUS_PLUS_INIT
        kmeans = contrib.factorization.KMeans(x, 3, start, distance, random_seed=1)
        _, index, scores, _, init, train = kmeans.training_graph()
        with sessions.started() as session:
            session.run(init, {x: points})
            for _ in range(5):
                session.run(train, {x: points})
            (nearest,), (far,) = session.run([index, scores], {x: points})
            [learned] = session.run([v for v in tf.global_variables() if v.op.name == "clusters"])
    assert len({tuple(nearest[n::3].tolist()) for n in range(3)}) == 3
    assert all(len(set(nearest[n::3])) == 1 for n in range(3))
    means = [points[n::3].mean(0) for n in range(3)]
    np.testing.assert_allclose(learned[nearest[:3]], means, rtol=1e-5)
    np.testing.assert_allclose(far, np.square(points - np.float32(means)[np.arange(90) % 3]).sum(1), rtol=1e-3)


@pytest.mark.skipif(not hasattr(tf, "keras"), reason="this TensorFlow comes without tf.keras")
def test_a_network_has_the_variables_of_its_layers():
    class Two(contrib.eager.Network):
        def __init__(self):
            super().__init__("two")
            self.first = self.track_layer(tf.layers.Dense(3, use_bias=False))
            self.others = {"last": self.track_layer(tf.layers.Dense(2))}

        def call(self, x):
            return self.others["last"](self.first(x))

    with tf.Graph().as_default():
        network = Two()
        assert network(tf.ones([4, 5])).shape == [4, 2]
        assert [v.shape.as_list() for v in network.trainable_variables] == [[5, 3], [3, 2], [2]]
        with pytest.raises(TypeError, match=r"not a tf.layers\.Layer"):
            network.track_layer(tf.ones([1]))


def test_an_iterator_of_eager_execution():
    with tf_internals.eager_mode():
        rows = contrib.eager.Iterator(tf.data.Dataset.range(5).batch(2))
        assert rows.next().numpy().tolist() == [0, 1]
        assert [row.numpy().tolist() for row in rows] == [[2, 3], [4]]
