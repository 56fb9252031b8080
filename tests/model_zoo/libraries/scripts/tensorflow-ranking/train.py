"""A scoring function with TensorFlow Ranking's head and loss in an Estimator; evaluated from its checkpoint."""

import numpy as np
import tensorflow as tf
import tensorflow_ranking as tfr

random = np.random.RandomState(0)
lists = {"relevance": random.rand(32, 5, 4).astype(np.float32)}
labels = (lists["relevance"].sum(2) > 2).astype(np.float32)


def fed(epochs):
    return tf.estimator.inputs.numpy_input_fn(lists, labels, 8, epochs, shuffle=False)


def score(context, group, mode, params, config):
    net = tf.layers.flatten(group["relevance"])
    return tf.layers.dense(tf.layers.dense(net, 8, tf.nn.relu), 1)


def train(loss):
    optimizer = tf.train.AdagradOptimizer(0.1)
    return optimizer.minimize(loss, global_step=tf.train.get_global_step())


head = tfr.head.create_ranking_head(
    loss_fn=tfr.losses.make_loss_fn(tfr.losses.RankingLossKey.PAIRWISE_LOGISTIC_LOSS),
    eval_metric_fns={"ndcg": tfr.metrics.make_ranking_metric_fn(tfr.metrics.RankingMetricKey.NDCG)},
    train_op_fn=train,
)
model_fn = tfr.model.make_groupwise_ranking_fn(
    group_score_fn=score, group_size=1, transform_fn=lambda features, mode, params: ({}, features), ranking_head=head
)
estimator = tf.estimator.Estimator(model_fn, "model")
estimator.train(fed(None), max_steps=8)
assert 0 < estimator.evaluate(fed(1))["ndcg"] <= 1
