"""Sentences as numbers of words."""

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
    """Return the number of each word: from 2 on, the most frequent first, equally frequent ones alphabetically.

    A word is what stands between white space, in lower case.

    Args:
        sentences: Where the words are from.
        size: How many words get a number, at most.
    """
    counts = Counter(word for sentence in sentences for word in _words(sentence))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[:size], _FIRST_WORD)}


def encode(sentences: Sequence[str], numbers: dict[str, int], length: int = 50) -> NDArray[np.int64]:
    """Return the sentences' words as numbers.

    Args:
        sentences: n sentences.
        numbers: The number of each word, as from ``vocabulary``; others become 1.
        length: How many words to keep of each sentence. Shorter ones are filled up with 0 at the end.

    Returns:
        Array ``(n, length)``.
    """
    encoded = np.full((len(sentences), length), PADDING, np.int64)
    for row, sentence in zip(encoded, sentences, strict=True):
        words = _words(sentence)[:length]
        row[: len(words)] = [numbers.get(word, UNKNOWN) for word in words]
    return encoded


def token_count(numbers: dict[str, int]) -> int:
    """Return how many different numbers ``encode`` can give, with padding and the unknown word."""
    return _FIRST_WORD + len(numbers)
