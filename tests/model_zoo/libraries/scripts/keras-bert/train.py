"""A tiny BERT of keras-bert: trained on made-up masked sentences, saved as one file and loaded."""

import keras
import numpy as np
from keras_bert import compile_model, gen_batch_inputs, get_base_dict, get_custom_objects, get_model

np.random.seed(0)
tokens = get_base_dict()
for n in range(20):
    tokens["w%d" % n] = len(tokens)
random = np.random.RandomState(0)
pairs = [[["w%d" % n for n in random.randint(0, 20, 4)] for _ in range(2)] for _ in range(16)]
model = get_model(
    token_num=len(tokens), head_num=2, transformer_num=1, embed_dim=16, feed_forward_dim=32, seq_len=16, pos_num=16,
    dropout_rate=0.0,
)  # fmt: skip
compile_model(model, learning_rate=1e-3)


def batches():
    while True:
        yield gen_batch_inputs(pairs, tokens, list(tokens), seq_len=16, mask_rate=0.3)


model.fit_generator(batches(), steps_per_epoch=4, epochs=2, verbose=2)
inputs, _ = next(batches())
wanted = model.predict(inputs)
model.save("bert.h5")
again = keras.models.load_model("bert.h5", custom_objects=get_custom_objects())
for one, other in zip(again.predict(inputs), wanted):
    np.testing.assert_allclose(one, other, atol=1e-2)
