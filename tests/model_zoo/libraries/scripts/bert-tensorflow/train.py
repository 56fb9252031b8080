"""A tiny BERT from the package bert-tensorflow, fine-tuned by an Estimator; predicts from its checkpoint."""

import numpy as np
import tensorflow as tf
from bert import modeling, optimization, tokenization

with open("vocab.txt", "w") as f:
    f.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["w%d" % n for n in range(50)]) + "\n")
tokenizer = tokenization.FullTokenizer("vocab.txt", do_lower_case=True)
random = np.random.RandomState(0)
texts = [" ".join("w%d" % n for n in random.randint(0, 50, 14)) for _ in range(32)]
ids = np.array([tokenizer.convert_tokens_to_ids(["[CLS]", *tokenizer.tokenize(text)[:14], "[SEP]"]) for text in texts])
labels = random.randint(0, 2, 32)
size = modeling.BertConfig(
    vocab_size=55, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=16,
)  # fmt: skip


def model_fn(features, labels, mode, params):
    ids = features["ids"]
    training = mode == tf.estimator.ModeKeys.TRAIN
    model = modeling.BertModel(size, training, ids, tf.ones_like(ids), tf.zeros_like(ids))
    logits = tf.layers.dense(model.get_pooled_output(), 2)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train = optimization.create_optimizer(loss, 1e-3, 8, 2, use_tpu=False)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def fed(epochs):
    return tf.estimator.inputs.numpy_input_fn({"ids": ids}, labels, 8, epochs, shuffle=False)


estimator = tf.estimator.Estimator(model_fn, "model")
estimator.train(fed(None), max_steps=8)
predicted = [row["logits"] for row in estimator.predict(fed(1))]
assert len(predicted) == 32
assert np.isfinite(predicted).all()
