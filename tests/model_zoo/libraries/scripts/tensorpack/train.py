"""A small classifier with Tensorpack: a ModelDesc, a trainer, ModelSaver; read again by OfflinePredictor."""

import glob

import numpy as np
import tensorflow as tf
import tensorpack as tp


class Model(tp.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec((None, 8, 8, 1), tf.float32, "image"), tf.TensorSpec((None,), tf.int32, "label")]

    def build_graph(self, image, label):
        net = tp.Conv2D("conv", image, 8, 3, activation=tf.nn.relu)
        net = tp.MaxPooling("pool", net, 2)
        net = tp.BatchNorm("bn", net)
        logits = tp.FullyConnected("fc", net, 2)
        tf.nn.softmax(logits, name="prob")
        cost = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
        cost = tf.reduce_mean(cost, name="cross_entropy_loss")
        tp.summary.add_moving_summary(cost)
        return cost

    def optimizer(self):
        return tf.train.AdamOptimizer(1e-2)


random = np.random.RandomState(0)
images = random.rand(64, 8, 8, 1).astype(np.float32)
labels = (images.mean((1, 2, 3)) > 0.5).astype(np.int32)
tp.logger.set_logger_dir("log", action="d")
rows = tp.DataFromList([[image, label] for image, label in zip(images, labels)], shuffle=False)
config = tp.TrainConfig(
    model=Model(),
    data=tp.FeedInput(tp.BatchData(rows, 16)),
    callbacks=[tp.ModelSaver()],
    steps_per_epoch=4,
    max_epoch=2,
)
tp.launch_train_with_config(config, tp.SimpleTrainer())

checkpoint = sorted(glob.glob("log/model-*.index"))[-1][: -len(".index")]
predict = tp.OfflinePredictor(
    tp.PredictConfig(model=Model(), session_init=tp.SmartInit(checkpoint), input_names=["image"], output_names=["prob"])
)
assert np.isfinite(predict(images)[0]).all()
