import pytest
from offbeat_core.errors import OffbeatError

from offbeat.data import DATASETS, catalogue, load_dataset
from offbeat.data.catalogue import CatalogueEntry, get_dataset, list_datasets
from offbeat.data.source_files import Source

NAMES = ["digits", "mnist", "fashion-mnist", "cifar10", "sst2", "sentiment140"]


@pytest.fixture
def source(nowhere, monkeypatch):
    """An empty folder; no data set has files, nor can they be downloaded."""
    for name, (description, train, test, source) in catalogue._CATALOGUE.items():
        if source:
            offline = Source(name, source.title, "http://127.0.0.1:1/", source.files, source.alternative)
            monkeypatch.setitem(catalogue._CATALOGUE, name, (description, train, test, offline))
    return nowhere


def locations():
    return {entry.name: entry.where for entry in list_datasets()}


def test_the_names():
    assert list(DATASETS) == [entry.name for entry in list_datasets()] == NAMES


def test_an_unknown_name():
    for function in (load_dataset, get_dataset):
        with pytest.raises(OffbeatError, match="unknown data set 'fashon-mnist': did you mean 'fashion-mnist'"):
            function("fashon-mnist")


def test_the_list_without_any_files(source):
    assert locations() == dict.fromkeys(NAMES, "not here") | {"digits": "comes with scikit-learn"}


def test_the_numbers_of_examples():
    dataset, entry = load_dataset("digits"), get_dataset("digits")
    assert (entry.train_examples, entry.test_examples) == (len(dataset.train_inputs), len(dataset.test_inputs))


def test_the_list_names_the_files(source, monkeypatch):
    sst2 = source / "cache" / "sst2"
    sst2.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        (sst2 / name).write_text("not looked at")
    (source / "cifar10-jpeg.tar.gz").write_text("not looked at")
    monkeypatch.setenv("OFFBEAT_DATA", str(source))
    found = locations()
    assert found["sst2"] == str(sst2)
    assert found["cifar10"] == str(source / "cifar10-jpeg.tar.gz")
    assert found["mnist"] == "not here"
    assert get_dataset("sst2").where == str(sst2)


def test_an_incomplete_folder_does_not_hide_the_other_data_sets(source, monkeypatch):
    (source / "mnist").mkdir()
    (source / "mnist" / "t10k-labels-idx1-ubyte.gz").write_text("")
    monkeypatch.setenv("OFFBEAT_DATA", str(source))
    found = locations()
    assert found["mnist"].startswith(f"{source / 'mnist'} holds only part of MNIST: add train-images")
    assert found["digits"] == "comes with scikit-learn"
    with pytest.raises(OffbeatError, match="only part of MNIST"):
        get_dataset("mnist")


def test_getting_downloads(source, server, monkeypatch):
    hashes = {"a": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}  # of b"a", by sha256sum
    server.files = {"a": b"a"}
    monkeypatch.setitem(catalogue._CATALOGUE, "mnist", ("digits", 6, 1, Source("mnist", "MNIST", server.url, hashes)))
    assert locations()["mnist"] == "not here"
    assert server.requests == []
    path = source / "cache" / "mnist" / "a"
    assert get_dataset("mnist") == CatalogueEntry("mnist", "digits", 6, 1, str(path))
    assert path.read_bytes() == b"a"
    assert locations()["mnist"] == str(path)
