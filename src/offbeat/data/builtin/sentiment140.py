"""Sentiment140: tweets by user, negative (0) or positive (1).

Go, Bhayani and Huang, "Twitter sentiment classification using distant supervision", Stanford 2009. It has no published
checksum, so it is not downloaded, and each row of the user's copy is checked.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin.tokenizer import encode, token_count, vocabulary
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source

FEWEST = 40
"""Users with this many tweets or fewer are left out, as in Yan et al.'s experiments with FedLaAvg."""

_FILE = "training.1600000.processed.noemoticon.csv"
_ARCHIVE = "http://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip"
_LABELS = {"0": 0, "4": 1}
_TEST_SHARE = 0.1


SOURCE = Source(
    name="sentiment140",
    title="Sentiment140",
    base_url=_ARCHIVE,
    files={_FILE: ""},
    instructions=f"take {_FILE} out of {_ARCHIVE}",
)


class _Tweet(NamedTuple):
    label: int
    hour: int
    user: str
    text: str


def load() -> Dataset:
    """Return the tweets of users with more than 40, as word numbers ``(n, 50)``.

    A random tenth is for testing. Users are numbered in the order of their names. The vocabulary is the 10,000 most
    frequent words of the training tweets; 0 is padding, 1 any other word.

    Raises:
        OffbeatError: The file is broken, or ``$OFFBEAT_DATA`` is not a folder.
        MissingDataError: The file is not found.
    """
    tweets, numbers = _read_tweets()
    is_test = np.random.default_rng(0).random(len(tweets)) < _TEST_SHARE
    train = [tweet for tweet, test in zip(tweets, is_test, strict=True) if not test]
    words = vocabulary([tweet.text for tweet in train])
    texts = encode([tweet.text for tweet in tweets], words)
    labels = np.array([tweet.label for tweet in tweets], np.int64)
    return Dataset(
        name=SOURCE.name,
        train_inputs=texts[~is_test],
        train_labels=labels[~is_test],
        test_inputs=texts[is_test],
        test_labels=labels[is_test],
        classes=2,
        tokens=token_count(words),
        users=np.array([numbers[tweet.user] for tweet in train], np.int64),
    )


def tweets_by_hour() -> NDArray[np.int64]:
    """Return each user's number of tweets in each hour of the day, ``(users, 24)``."""
    tweets, numbers = _read_tweets()
    counts = np.zeros((len(numbers), 24), np.int64)
    for tweet in tweets:
        counts[numbers[tweet.user], tweet.hour] += 1
    return counts


def _read_tweets() -> tuple[list[_Tweet], dict[str, int]]:
    """Return the tweets of users with enough of them, and the users' numbers by name."""
    (path,) = SOURCE.get()
    tweets = list(_read(path))
    counts = Counter(tweet.user for tweet in tweets)
    numbers = {user: number for number, user in enumerate(sorted(u for u, n in counts.items() if n > FEWEST))}
    if not numbers:
        raise OffbeatError(f"{path} has no user with more than {FEWEST} tweets: is the file complete?")
    return [tweet for tweet in tweets if tweet.user in numbers], numbers


def _read(path: Path) -> Iterator[_Tweet]:
    """Yield the tweets of rows (polarity, id, date, query, user, text)."""
    try:
        with path.open(encoding="latin-1", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                try:
                    polarity, _, date, _, user, text = row
                    yield _Tweet(_LABELS[polarity], _parse_hour(date), user, text)
                except (ValueError, LookupError):
                    raise OffbeatError(
                        f"{path}: row {number} is not Sentiment140's: it needs six columns, the first 0 or 4, the "
                        "third a date such as Mon Apr 06 22:19:45 PDT 2009"
                    ) from None
    except (OSError, csv.Error) as error:
        raise OffbeatError(f"cannot read {path}: {error}; remove or replace it") from error


def _parse_hour(date: str) -> int:
    hour = int(date.split()[3].partition(":")[0])
    if not 0 <= hour < 24:
        raise ValueError(date)
    return hour
