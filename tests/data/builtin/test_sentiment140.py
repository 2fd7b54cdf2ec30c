import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin import sentiment140
from offbeat.data.catalogue import load_dataset
from offbeat.data.dataset import MissingDataError

NAME = "training.1600000.processed.noemoticon.csv"


def row(polarity, hour, user, text):
    return f'"{polarity}","1","Mon Apr 06 {hour:02}:19:45 PDT 2009","NO_QUERY","{user}","{text}"\n'


@pytest.fixture
def file(nowhere, monkeypatch):
    """Zoe and Ann have 50 tweets each, Bob, who is left out, 40; the words are latin-1 as in the real file."""
    folder = nowhere / "own"
    folder.mkdir()
    monkeypatch.setenv("OFFBEAT_DATA", str(folder))
    rows = [row(4 * (n % 2), n % 24, "zoe", f"caf\u00e9 {'good' if n % 2 else 'bad'}, said she") for n in range(50)]
    rows += [row(4, 23, "ann", "good day") for _ in range(50)]
    rows += [row(0, 5, "bob", "never") for _ in range(40)]
    path = folder / NAME
    path.write_bytes("".join(rows).encode("latin-1"))
    return path


def test_users_with_many_tweets_are_clients(file):
    dataset = load_dataset("sentiment140")
    assert (dataset.name, dataset.classes) == ("sentiment140", 2)
    assert len(dataset.train_labels) + len(dataset.test_labels) == 100
    assert 3 <= len(dataset.test_labels) <= 20
    assert len(dataset.users) == len(dataset.train_labels)
    ann, zoe = dataset.users == 0, dataset.users == 1
    assert (ann | zoe).all()
    assert set(dataset.train_labels[ann]) == {1}
    assert set(dataset.train_labels[zoe]) == {0, 1}
    # café, said, she come as often; bad, good and day, too, are words of their own; "never" is nobody's.
    assert dataset.tokens == 2 + len({"café", "good,", "bad,", "said", "she", "good", "day"})
    good = dataset.train_inputs[zoe & (dataset.train_labels == 1)]
    bad = dataset.train_inputs[zoe & (dataset.train_labels == 0)]
    assert len(np.unique(good, axis=0)) == len(np.unique(bad, axis=0)) == 1
    assert (good[0] != bad[0]).sum() == 1
    assert np.array_equal(load_dataset("sentiment140").test_inputs, dataset.test_inputs)


def test_tweets_by_hour(file):
    counts = sentiment140.tweets_by_hour()
    assert counts.shape == (2, 24)
    assert counts[0].tolist() == [0] * 23 + [50]
    assert counts[1].tolist() == [3, 3] + [2] * 22


@pytest.mark.parametrize(
    "line", ['"2","1","Mon Apr 06 22:19:45 PDT 2009","q","u","t"\n', "a,b\n", row(4, 24, "u", "t")]
)
def test_another_row_is_named(file, line):
    file.write_bytes(file.read_bytes() + line.encode())
    with pytest.raises(OffbeatError, match=rf"{NAME}: row 141 is not Sentiment140's"):
        load_dataset("sentiment140")


def test_a_part_of_the_file_is_refused(file):
    file.write_text(row(4, 1, "u", "t"), encoding="latin-1")
    with pytest.raises(OffbeatError, match="no user with more than 40 tweets"):
        load_dataset("sentiment140")


def test_the_error_says_where_to_get_the_file(nowhere):
    with pytest.raises(MissingDataError, match=r"Sentiment140 is not here: take .* out of http.*set OFFBEAT_DATA"):
        load_dataset("sentiment140")
