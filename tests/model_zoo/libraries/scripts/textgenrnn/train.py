"""A character model of textgenrnn, trained from nothing on made-up words, saved, loaded and sampled from."""

import numpy as np
from textgenrnn import textgenrnn

random = np.random.RandomState(0)
texts = [" ".join("w%d" % n for n in random.randint(0, 10, 6)) for _ in range(16)]
model = textgenrnn(name="words")
model.train_on_texts(
    texts, new_model=True, num_epochs=1, gen_epochs=0, batch_size=32, max_length=8, rnn_size=16, rnn_layers=1,
    dim_embeddings=8,
)  # fmt: skip
again = textgenrnn("words_weights.hdf5", vocab_path="words_vocab.json", config_path="words_config.json")
assert again.generate(1, return_as_list=True, max_gen_length=4)
