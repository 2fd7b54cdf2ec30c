import hashlib

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin import sst2
from offbeat.data.source_files import Source

FILES = {
    "train.tsv": b"good film\t1\nbad bad film\t0\nGood good\t1",  # the real files end without a line break, too
    "dev.tsv": b"dull\t0\n",
    "test.tsv": b"dull film\t0\ngood\t1\n",
}


@pytest.fixture
def folder(nowhere, monkeypatch):
    folder = nowhere / "cache" / "sst2"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(sst2, "SOURCE", Source("sst2", "SST-2", "http://127.0.0.1:1/", hashes))
    return folder


def test_inputs_and_labels(folder):
    dataset = sst2.load()
    assert (dataset.name, dataset.classes, dataset.tokens) == ("sst2", 2, 5)
    assert dataset.train_inputs.shape == (3, 50)
    assert dataset.train_inputs.dtype == dataset.train_labels.dtype == np.int64
    # good 3 times is 2; bad and film twice are 3 and 4; dull is in none of the training sentences.
    assert dataset.train_inputs[:, :4].tolist() == [[2, 4, 0, 0], [3, 3, 4, 0], [2, 2, 0, 0]]
    assert dataset.train_labels.tolist() == [1, 0, 1]
    assert dataset.test_inputs[:, :3].tolist() == [[1, 4, 0], [2, 0, 0]]
    assert dataset.test_labels.tolist() == [0, 1]


def test_another_file_is_refused(folder):
    (folder / "test.tsv").write_bytes(FILES["test.tsv"] + b"\n")
    with pytest.raises(OffbeatError, match=r"/test\.tsv does not belong to SST-2: its SHA-256 .*; remove"):
        sst2.load()


def test_a_file_that_cannot_be_read(folder, monkeypatch):
    monkeypatch.setattr(Source, "get", lambda self: (folder, folder / "none", folder / "none"))
    with pytest.raises(OffbeatError, match=r"cannot read .*: Is a directory; remove or replace it"):
        sst2.load()


def test_the_real_files(real_data):
    real_data("sst2", *sst2.SOURCE.files)
    dataset = sst2.load()
    assert dataset.train_inputs.shape == (6_920, 50)
    assert dataset.test_inputs.shape == (1_821, 50)
    assert dataset.tokens == 10_002
    # Half of the sentences, or nearly, are positive.
    assert np.bincount(dataset.train_labels).tolist() == [3_310, 3_610]
    assert np.bincount(dataset.test_labels).tolist() == [912, 909]
    assert dataset.train_inputs.max() == 10_001
