"""Sentences as letters, divided among made-up users."""

import logging

import numpy as np
from numpy.typing import NDArray

from offbeat import Dataset
from offbeat.data import MissingDataError
from offbeat.data.builtin import sst2

ALPHABET = " abcdefghijklmnopqrstuvwxyz.,'-"  # token 0 is padding and ends a sentence, 1 … 31 are these
TOKENS = len(ALPHABET) + 1
IGNORED = -100  # the label of padding: the loss ignores it

_WORDS = (
    ("a", "this", "the", "no", "one more"),
    ("dull", "fine", "funny", "slow", "lovely", "loud"),
    ("film", "story", "comedy", "cast", "script"),
    ("is", "was", "seems", "feels"),
    ("too long", "a joy", "a mess", "worth it", "hard to like", "over soon"),
)


def data(users: int, length: int = 48, train_examples: int = 2000, test_examples: int = 300) -> Dataset:
    """Return sentences of SST-2 as letters, int64 ``(n, length)``.

    They are made up if SST-2 is missing. Labels are the letters, and −100 for padding: the model shifts them.

    Args:
        users: Number of users; each has sentences of about one length.
        length: Letters to which sentences are cut or padded.
        train_examples: Number of sentences to train on, at most.
        test_examples: Number of sentences to test on, at most.
    """
    try:
        (train, _), (test, _) = sst2.sentences()
    except MissingDataError as error:
        logging.getLogger(__name__).warning("%s; going on with made-up sentences instead", error)
        made = made_up(train_examples + test_examples)
        train, test = made[test_examples:], made[:test_examples]
    train, test = train[:train_examples], test[:test_examples]
    inputs, tests = letters(train, length), letters(test, length)
    # The first users have the shortest sentences, so that clients differ.
    owner = np.empty(len(train), np.int64)
    owner[np.argsort([len(sentence) for sentence in train], kind="stable")] = (
        np.arange(len(train)) * users // len(train)
    )
    return Dataset(
        name="letters",
        train_inputs={"input_ids": inputs},
        train_labels=np.where(inputs > 0, inputs, IGNORED),
        test_inputs={"input_ids": tests},
        test_labels=np.where(tests > 0, tests, IGNORED),
        classes=None,  # a label for each letter, not one for a sentence
        tokens=TOKENS,
        users=owner,
    )


def letters(sentences: list[str], length: int) -> NDArray[np.int64]:
    """Return sentences as numbers, int64 ``(n, length)``, of their known letters."""
    numbers = np.zeros((len(sentences), length), np.int64)
    for row, sentence in zip(numbers, sentences, strict=True):
        found = [ALPHABET.index(letter) + 1 for letter in sentence.lower() if letter in ALPHABET][:length]
        row[: len(found)] = found
    return numbers


def made_up(number: int) -> list[str]:
    """Return sentences drawn from a few words, always the same."""
    draw = np.random.default_rng(0)
    return [" ".join(str(draw.choice(words)) for words in _WORDS) + "." for _ in range(number)]
