"""tf.contrib.learn.preprocessing: words to ids (behaviour of TensorFlow 1.15.5)."""

import collections
import pickle
import re

import numpy as np

TOKEN = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)


def tokenizer(iterator):
    """Yields the list of words of each text."""
    for text in iterator:
        yield TOKEN.findall(text)


class CategoricalVocabulary:
    """Words and their ids; the unknown word is 0.

    Args:
        unknown_token: str.
        support_reverse: whether ids can be turned into words again.
    """

    def __init__(self, unknown_token="<UNK>", support_reverse=True):
        self._unknown_token = unknown_token
        self._support_reverse = support_reverse
        self._mapping = {unknown_token: 0}
        self._freq = collections.defaultdict(int)
        self._reverse_mapping = [unknown_token] if support_reverse else None
        self._freeze = False

    def __len__(self):
        return len(self._mapping)

    def freeze(self, freeze=True):
        """No new words from now on."""
        self._freeze = freeze

    def get(self, category):
        """Returns the id of a word, a new one unless frozen."""
        if category not in self._mapping:
            if self._freeze:
                return 0
            self._mapping[category] = len(self._mapping)
            if self._support_reverse:
                self._reverse_mapping.append(category)
        return self._mapping[category]

    def add(self, category, count=1):
        """Counts a word."""
        category_id = self.get(category)
        if category_id > 0:
            self._freq[category] += count

    def trim(self, min_frequency, max_frequency=-1):
        """Forgets words seen too rarely or too often, and numbers the rest by frequency, then by word."""
        kept = sorted(self._freq.items(), key=lambda item: (-item[1], item[0]))
        if max_frequency > 0:
            kept = [item for item in kept if item[1] < max_frequency]
        kept = [item for item in kept if item[1] > min_frequency]
        self._mapping = {self._unknown_token: 0}
        self._mapping.update((word, index) for index, (word, _) in enumerate(kept, 1))
        self._freq = collections.defaultdict(int, kept)
        if self._support_reverse:
            self._reverse_mapping = [self._unknown_token, *(word for word, _ in kept)]

    def reverse(self, class_id):
        """Returns the word of an id."""
        if not self._support_reverse:
            raise ValueError("This vocabulary wasn't initialized with support_reverse to support reverse() function.")
        return self._reverse_mapping[class_id]


class VocabularyProcessor:
    """Turns texts into rows of word ids of one length, 0 behind the end.

    Args:
        max_document_length: int.
        min_frequency: int, words seen less often are unknown.
        vocabulary: optional CategoricalVocabulary.
        tokenizer_fn: optional, texts -> lists of words.
    """

    def __init__(self, max_document_length, min_frequency=0, vocabulary=None, tokenizer_fn=None):
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents, unused_y=None):
        """Learns the words of texts; returns self."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents, unused_y=None):
        """`fit`, then `transform`."""
        self.fit(raw_documents)
        return self.transform(raw_documents)

    def transform(self, raw_documents):
        """Yields int64 [max_document_length] for each text."""
        for words in self._tokenizer(raw_documents):
            ids = np.zeros(self.max_document_length, np.int64)
            for index, word in enumerate(words[: self.max_document_length]):
                ids[index] = self.vocabulary_.get(word)
            yield ids

    def reverse(self, documents):
        """Yields the words of each row of ids."""
        for document in documents:
            yield " ".join(self.vocabulary_.reverse(class_id) for class_id in document)

    def save(self, filename):
        """Writes this to a file, with pickle."""
        with open(filename, "wb") as f:
            f.write(pickle.dumps(self))

    @classmethod
    def restore(cls, filename):
        """Reads what `save` has written; a file from elsewhere can run code."""
        with open(filename, "rb") as f:
            return pickle.loads(f.read())
