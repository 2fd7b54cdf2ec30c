"""SST-2's sentences as tokens, divided among made-up users."""

import warnings

import numpy as np
from base_model import find_base, import_package
from numpy.typing import NDArray

from offbeat import Dataset
from offbeat.data.builtin import sst2


def data(name: str, sha256: str, users: int, length: int = 32, test_examples: int | None = None) -> Dataset:
    """Return SST-2 as tokens, int64 ``(n, length)``, with users.

    Args:
        name: The base model whose tokenizer is used, as in ``lora_model.py``.
        sha256: That of the base model's weights.
        users: Number of users.
        length: Tokens to which sentences are cut or padded.
        test_examples: Number of test sentences, chosen evenly; None for all 1,821.
    """
    transformers = import_package("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(find_base(name, sha256)), local_files_only=True)

    def tokens(sentences: list[str]) -> NDArray[np.int64]:
        return tokenizer(
            sentences, padding="max_length", truncation=True, max_length=length, return_tensors="np"
        ).input_ids.astype(np.int64)

    (train, train_labels), (test, test_labels) = sst2.sentences()
    chosen = np.linspace(0, len(test) - 1, test_examples or len(test)).astype(int)
    return Dataset(
        name="sst2",
        train_inputs=tokens(train),
        train_labels=train_labels,
        test_inputs=tokens([test[index] for index in chosen]),
        test_labels=test_labels[chosen],
        classes=2,
        tokens=len(tokenizer),
        users=made_up_users(train_labels, users),
    )


def made_up_users(labels: NDArray[np.int64], users: int) -> NDArray[np.int64]:
    """Return each sentence's user, 0 … users − 1, int64 ``(n,)``.

    SST-2 does not name its authors. Users differ in the number of their sentences and in the share of positive ones:
    a class is divided in proportion to exponentially distributed numbers, one for each user. Each user has a sentence.
    """
    numbers = np.random.default_rng(0)
    found = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        shares = numbers.exponential(size=users)
        found[labels == label] = numbers.choice(users, np.count_nonzero(labels == label), p=shares / shares.sum())
    found[numbers.permutation(len(labels))[:users]] = np.arange(users)
    return found
