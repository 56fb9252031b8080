"""A classifier and a tagger of Kashgari, trained on made-up sentences, saved and loaded again."""

import kashgari
import numpy as np
from kashgari.embeddings import BareEmbedding
from kashgari.tasks.classification import BiLSTM_Model
from kashgari.tasks.labeling import BiLSTM_CRF_Model

random = np.random.RandomState(0)
sentences = [["w%d" % n for n in random.randint(0, 10, 6)] for _ in range(48)]
labels = ["yes" if "w3" in words else "no" for words in sentences]
tags = [["B-N" if word in ("w1", "w2") else "O" for word in words] for words in sentences]
classifier = BiLSTM_Model(BareEmbedding(kashgari.CLASSIFICATION, sequence_length=6, embedding_size=8))
classifier.fit(sentences, labels, sentences, labels, epochs=2, batch_size=16)
classifier.save("classifier")
again = kashgari.utils.load_model("classifier")
assert again.predict(sentences) == classifier.predict(sentences)
tagger = BiLSTM_CRF_Model(BareEmbedding(kashgari.LABELING, sequence_length=6, embedding_size=8))
tagger.fit(sentences, tags, sentences, tags, epochs=2, batch_size=16)
assert len(tagger.predict(sentences[:1])[0]) == 6
