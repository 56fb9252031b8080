"""A classifier of TensorFlow 1 in the Adversarial Robustness Toolbox: trained, attacked, saved."""

import numpy as np
import tensorflow as tf
from art.attacks import FastGradientMethod
from art.classifiers import TensorFlowClassifier

random = np.random.RandomState(0)
images = random.rand(64, 8, 8, 1).astype(np.float32)
labels = np.eye(2, dtype=np.float32)[(images.mean((1, 2, 3)) > 0.5).astype(int)]
x, y = tf.placeholder(tf.float32, [None, 8, 8, 1]), tf.placeholder(tf.int32, [None, 2])
net = tf.layers.conv2d(x, 8, 3, activation=tf.nn.relu)
logits = tf.layers.dense(tf.layers.flatten(net), 2)
loss = tf.reduce_mean(tf.losses.softmax_cross_entropy(onehot_labels=y, logits=logits))
train = tf.train.AdamOptimizer(0.01).minimize(loss)
session = tf.Session()
session.run(tf.global_variables_initializer())
classifier = TensorFlowClassifier(
    input_ph=x, output=logits, labels_ph=y, train=train, loss=loss, sess=session, clip_values=(0, 1)
)
classifier.fit(images, labels, batch_size=16, nb_epochs=3)
attacked = FastGradientMethod(classifier, eps=0.1).generate(images)
assert 0 < np.abs(attacked - images).max() < 0.11
wanted = classifier.predict(images)
classifier.save("model", "saved")
with tf.Graph().as_default(), tf.Session() as other:
    saved = tf.saved_model.load(other, ["serve"], "saved/model")
    (name,) = [tensor.name for tensor in saved.signature_def["predict"].outputs.values()]
    np.testing.assert_allclose(other.run(name, {x.name: images}), wanted, atol=1e-2)
