"""SST-2: sentences from film reviews, negative (0) or positive (1).

Socher et al., "Recursive deep models for semantic compositionality over a sentiment treebank", EMNLP 2013. It has
complete sentences without the neutral ones, in the usual parts of 6,920, 872 and 1,821; GLUE's larger training part has
phrases too.
"""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin.tokenizer import encode, token_count, vocabulary
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source

SOURCE = Source(
    name="sst2",
    title="SST-2",
    base_url="https://raw.githubusercontent.com/clairett/pytorch-sentiment-classification/master/data/SST2/",
    files={
        "train.tsv": "ec192f833a64da08f475488a77b0d0b47db47acd0f458bd18433fc793b569920",
        "dev.tsv": "eddea6b39e601dd4e7a672b53cc40fdf6019fa80522f351206c24340ca5d9359",
        "test.tsv": "831169c7e2e429d6026e1bdbb542f33b636e3e596caad9602ebc953c205928b7",
    },
)
_LONGEST = 1 << 20  # bytes; the files have 720,259, 92,057 and 188,749


def load() -> Dataset:
    """Return 6,920 training and 1,821 test sentences as word numbers ``(n, 50)``.

    The vocabulary is the 10,000 most frequent words of the training sentences; 0 is padding, 1 any other word. The 872
    sentences of ``dev.tsv`` are not used.

    Raises:
        OffbeatError: A file is broken or belongs to another data set, or ``$OFFBEAT_DATA`` is not a folder or holds
            only some of the files.
        MissingDataError: The files are not found and cannot be downloaded.
    """
    (train, train_labels), (test, test_labels) = sentences()
    numbers = vocabulary(train)
    return Dataset(
        name="sst2",
        train_inputs=encode(train, numbers),
        train_labels=train_labels,
        test_inputs=encode(test, numbers),
        test_labels=test_labels,
        classes=2,
        tokens=token_count(numbers),
    )


def sentences() -> tuple[tuple[list[str], NDArray[np.int64]], tuple[list[str], NDArray[np.int64]]]:
    """Return the training and the test sentences as text, with labels ``(n,)``."""
    parts = {path.name: _read(path) for path in SOURCE.get()}
    return parts["train.tsv"], parts["test.tsv"]


def _read(path: Path) -> tuple[list[str], NDArray[np.int64]]:
    """Return the sentences and the labels of a file of lines "sentence<TAB>label"."""
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST)
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}; remove or replace it") from error
    if hashlib.sha256(content).hexdigest() != SOURCE.files[path.name]:
        raise OffbeatError(
            f"{path} does not belong to SST-2: its SHA-256 differs (is it from another data set?); remove or replace it"
        )
    rows = [line.split("\t") for line in content.decode().splitlines()]
    return [sentence for sentence, _ in rows], np.array([int(label) for _, label in rows], np.int64)
