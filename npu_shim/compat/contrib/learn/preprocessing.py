"""tf.contrib.learn.preprocessing: words to ids (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import collections
import pickle
import re
from typing import Any, Iterable, Iterator

import numpy as np

TOKEN = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)


def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """Yields the list of words of each text."""
    for text in iterator:
        yield TOKEN.findall(text)


class CategoricalVocabulary:
    """Words and their ids; the unknown word is 0.

    Args:
        unknown_token: str.
        support_reverse: whether ids can be mapped back to words.
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        self._unknown_token = unknown_token
        self._support_reverse = support_reverse
        self._mapping = {unknown_token: 0}
        self._freq: dict[str, int] = collections.defaultdict(int)
        self._reverse_mapping = [unknown_token] if support_reverse else []
        self._freeze = False

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Adds no new words from now on."""
        self._freeze = freeze

    def get(self, category: str) -> int:
        """Returns the id of a word; a new word gets a new id unless frozen."""
        if category not in self._mapping:
            if self._freeze:
                return 0
            self._mapping[category] = len(self._mapping)
            if self._support_reverse:
                self._reverse_mapping.append(category)
        return self._mapping[category]

    def add(self, category: str, count: int = 1) -> None:
        """Counts a word."""
        category_id = self.get(category)
        if category_id > 0:
            self._freq[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Removes words seen too rarely or too often, and numbers the rest by frequency, then by word."""
        kept = sorted(self._freq.items(), key=lambda item: (-item[1], item[0]))
        if max_frequency > 0:
            kept = [item for item in kept if item[1] < max_frequency]
        kept = [item for item in kept if item[1] > min_frequency]
        self._mapping = {self._unknown_token: 0}
        self._mapping.update((word, index) for index, (word, _) in enumerate(kept, 1))
        self._freq = collections.defaultdict(int, kept)
        if self._support_reverse:
            self._reverse_mapping = [self._unknown_token, *(word for word, _ in kept)]

    def reverse(self, class_id: int) -> str:
        """Returns the word of an id."""
        if not self._support_reverse:
            raise ValueError("This vocabulary wasn't initialized with support_reverse to support reverse() function.")
        return self._reverse_mapping[class_id]


class VocabularyProcessor:
    """Turns texts into rows of word ids of one length, padded with 0.

    Args:
        max_document_length: int.
        min_frequency: int, words seen less often are unknown.
        vocabulary: optional CategoricalVocabulary.
        tokenizer_fn: optional, texts -> lists of words.
    """

    def __init__(
        self, max_document_length: int, min_frequency: int = 0, vocabulary: Any = None, tokenizer_fn: Any = None
    ) -> None:
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> VocabularyProcessor:
        """Learns the words of texts; returns self."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents: Iterable[str], unused_y: Any = None) -> Iterator[Any]:
        """`fit`, then `transform`."""
        self.fit(raw_documents)
        return self.transform(raw_documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[Any]:
        """Yields int64 [max_document_length] for each text."""
        for words in self._tokenizer(raw_documents):
            ids = np.zeros(self.max_document_length, np.int64)
            for index, word in enumerate(words[: self.max_document_length]):
                ids[index] = self.vocabulary_.get(word)
            yield ids

    def reverse(self, documents: Iterable[Any]) -> Iterator[str]:
        """Yields the words of each row of ids."""
        for document in documents:
            yield " ".join(self.vocabulary_.reverse(class_id) for class_id in document)

    def save(self, filename: str) -> None:
        """Writes this to a file, with pickle."""
        with open(filename, "wb") as f:
            f.write(pickle.dumps(self))

    @classmethod
    def restore(cls, filename: str) -> Any:
        """Reads a file that `save` wrote; a file from an untrusted source can run code."""
        with open(filename, "rb") as f:
            return pickle.loads(f.read())
