"""A language model with Texar: embedder, LSTM decoder, its loss and train op; restored afterwards."""

import numpy as np
import tensorflow as tf
import texar as tx

random = np.random.RandomState(0)
words = random.randint(0, 20, (16, 7))
x, y = tf.placeholder(tf.int32, [16, 6]), tf.placeholder(tf.int32, [16, 6])
lengths = tf.fill([16], 6)
embedder = tx.modules.WordEmbedder(vocab_size=20, hparams={"dim": 16})
cell = {"type": "LSTMBlockCell", "kwargs": {"num_units": 16}, "dropout": {"output_keep_prob": 1.0}}
decoder = tx.modules.BasicRNNDecoder(vocab_size=20, hparams={"rnn_cell": cell})
outputs, _, _ = decoder(
    decoding_strategy="train_greedy", impute_finished=True, inputs=embedder(x), sequence_length=lengths
)
loss = tx.losses.sequence_sparse_softmax_cross_entropy(labels=y, logits=outputs.logits, sequence_length=lengths)
train = tx.core.get_train_op(loss, hparams={"optimizer": {"type": "AdamOptimizer", "kwargs": {"learning_rate": 0.01}}})
feed = {x: words[:, :-1], y: words[:, 1:]}
saver = tf.train.Saver()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(8):
        session.run([loss, train], feed)
    saver.save(session, "./model.ckpt")
    wanted = session.run(outputs.logits, feed)
with tf.Session() as session:
    saver.restore(session, "./model.ckpt")
    np.testing.assert_allclose(session.run(outputs.logits, feed), wanted, atol=1e-2)
