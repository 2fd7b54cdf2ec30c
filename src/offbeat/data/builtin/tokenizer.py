"""A tokenizer that splits at white space, and its vocabulary."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

PADDING = 0
UNKNOWN = 1
_FIRST_WORD = 2


def _words(sentence: str) -> list[str]:
    return sentence.lower().split()


def vocabulary(sentences: Iterable[str], size: int = 10_000) -> dict[str, int]:
    """Return a number for each word, from 2; the most frequent word comes first.

    Equally frequent words are in alphabetical order. Words are separated by white space and converted to lower case.
    """
    counts = Counter(word for sentence in sentences for word in _words(sentence))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[:size], _FIRST_WORD)}


def encode(sentences: Sequence[str], numbers: dict[str, int], length: int = 50) -> NDArray[np.int64]:
    """Return the first words of the sentences as numbers, ``(n, length)``.

    Words that the vocabulary ``numbers`` lacks become 1; shorter sentences are padded with 0 at the end.
    """
    encoded = np.full((len(sentences), length), PADDING, np.int64)
    for row, sentence in zip(encoded, sentences, strict=True):
        words = _words(sentence)[:length]
        row[: len(words)] = [numbers.get(word, UNKNOWN) for word in words]
    return encoded


def token_count(numbers: dict[str, int]) -> int:
    """Return the number of distinct values of ``encode``."""
    return _FIRST_WORD + len(numbers)
