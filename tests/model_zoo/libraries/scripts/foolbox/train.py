"""Adversarial training with foolbox 2: its TensorFlowModel on a graph, FGSM and a DeepFool; restored afterwards."""

import foolbox
import numpy as np
import tensorflow as tf

random = np.random.RandomState(0)
images = random.rand(64, 8, 8, 1).astype(np.float32)
labels = (images.mean((1, 2, 3)) > 0.5).astype(np.int64)
x, y = tf.placeholder(tf.float32, [None, 8, 8, 1]), tf.placeholder(tf.int64, [None])
net = tf.layers.conv2d(x, 8, 3, activation=tf.nn.relu)
logits = tf.layers.dense(tf.layers.flatten(net), 2)
loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
step = tf.train.AdamOptimizer(0.01).minimize(loss)
saver = tf.train.Saver()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    model = foolbox.models.TensorFlowModel(x, logits, bounds=(0, 1))
    attack = foolbox.attacks.FGSM(model, distance=foolbox.distances.Linf)
    for _ in range(2):
        for at in range(0, 64, 16):
            given = images[at : at + 16]
            adversarial = attack(given, labels[at : at + 16])
            fooled = np.where(np.isnan(adversarial), given, adversarial)
            print("loss", session.run([step, loss], {x: fooled, y: labels[at : at + 16]})[1])
    deep = foolbox.attacks.DeepFoolAttack(model)(images[:8], labels[:8])
    assert deep.shape == (8, 8, 8, 1)
    saver.save(session, "./model.ckpt")
    wanted = model.forward(images)
    saver.restore(session, "./model.ckpt")
    assert (model.forward(images) == wanted).all()
