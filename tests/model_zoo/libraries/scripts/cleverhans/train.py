"""Adversarial training with CleverHans 3: its model, FastGradientMethod, its train loop; restored afterwards."""

import numpy as np
import tensorflow as tf
from cleverhans.attacks import FastGradientMethod
from cleverhans.loss import CrossEntropy
from cleverhans.model import Model
from cleverhans.train import train
from cleverhans.utils_tf import model_eval


class Small(Model):
    def __init__(self):
        Model.__init__(self, "small", nb_classes=2, needs_dummy_fprop=True)
        self.dummy_fprop = tf.placeholder(tf.float32, [16, 8, 8, 1])
        self.fprop(self.dummy_fprop)

    def fprop(self, x, **kwargs):
        with tf.variable_scope(self.scope, reuse=tf.AUTO_REUSE):
            net = tf.layers.conv2d(x, 8, 3, activation=tf.nn.relu)
            logits = tf.layers.dense(tf.layers.flatten(net), 2)
            return {self.O_LOGITS: logits, self.O_PROBS: tf.nn.softmax(logits)}

    def get_params(self):
        return tf.trainable_variables("small")


random = np.random.RandomState(0)
images = random.rand(64, 8, 8, 1).astype(np.float32)
labels = np.eye(2, dtype=np.float32)[(images.mean((1, 2, 3)) > 0.5).astype(int)]
session = tf.Session()
x, y = tf.placeholder(tf.float32, [None, 8, 8, 1]), tf.placeholder(tf.float32, [None, 2])
model = Small()
attack = FastGradientMethod(model, sess=session)
loss = CrossEntropy(model, smoothing=0.1, attack=lambda x: attack.generate(x, eps=0.1, clip_min=0.0, clip_max=1.0))
rules = {"nb_epochs": 2, "batch_size": 16, "learning_rate": 0.01}
train(session, loss, images, labels, args=rules, rng=random, devices=["/cpu:0"])
saver = tf.train.Saver(model.get_params())
saver.save(session, "./model.ckpt")
adversarial = model.get_logits(attack.generate(x, eps=0.1))
wanted = model_eval(session, x, y, adversarial, images, labels, args={"batch_size": 16})
saver.restore(session, "./model.ckpt")
assert model_eval(session, x, y, adversarial, images, labels, args={"batch_size": 16}) == wanted
