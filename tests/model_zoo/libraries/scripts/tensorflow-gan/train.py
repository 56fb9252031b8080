"""A generator and a discriminator by TF-GAN's gan_model, gan_loss, gan_train_ops and gan_train."""

import numpy as np
import tensorflow.compat.v1 as tf
import tensorflow_gan as tfgan

tf.disable_eager_execution()
random = np.random.RandomState(0)
real = tf.constant(random.rand(16, 8).astype(np.float32))


def generator(noise):
    return tf.layers.dense(tf.layers.dense(noise, 16, tf.nn.relu), 8)


def discriminator(data, _):
    return tf.layers.dense(tf.layers.dense(data, 16, tf.nn.relu), 1)


model = tfgan.gan_model(generator, discriminator, real, tf.constant(random.rand(16, 4).astype(np.float32)))
loss = tfgan.gan_loss(
    model,
    generator_loss_fn=tfgan.losses.modified_generator_loss,
    discriminator_loss_fn=tfgan.losses.modified_discriminator_loss,
)
ops = tfgan.gan_train_ops(model, loss, tf.train.AdamOptimizer(1e-3), tf.train.AdamOptimizer(1e-3))
tfgan.gan_train(ops, "log", hooks=[tf.train.StopAtStepHook(num_steps=6)])
saver = tf.train.Saver()
with tf.Session() as session:
    saver.restore(session, tf.train.latest_checkpoint("log"))
    assert np.isfinite(session.run(model.generated_data)).all()
