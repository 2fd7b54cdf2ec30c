"""The built-in data sets by name.

A new data set is a module in ``builtin/`` and a line in ``DATASETS`` and ``_CATALOGUE``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from offbeat_core.errors import OffbeatError, did_you_mean

from offbeat.data.builtin import cifar10, sentiment140, sst2
from offbeat.data.builtin.images import FASHION_MNIST, MNIST, digits
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source, data_folder

DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits,
    "mnist": MNIST.load,
    "fashion-mnist": FASHION_MNIST.load,
    "cifar10": cifar10.load,
    "sst2": sst2.load,
    "sentiment140": sentiment140.load,
}

# Description, training examples, test examples, source of the files.
_CATALOGUE: dict[str, tuple[str, int | None, int | None, Source | None]] = {
    "digits": ("handwritten digits, 8 × 8 grey pixels, 10 classes", 1_433, 364, None),
    "mnist": ("handwritten digits, 28 × 28 grey pixels, 10 classes", 60_000, 10_000, MNIST.source),
    "fashion-mnist": ("images of clothes, 28 × 28 grey pixels, 10 classes", 60_000, 10_000, FASHION_MNIST.source),
    "cifar10": ("images of objects and animals, 32 × 32 colour pixels, 10 classes", 50_000, 10_000, cifar10.SOURCE),
    "sst2": ("sentences from film reviews, negative or positive", 6_920, 1_821, sst2.SOURCE),
    "sentiment140": ("tweets by user, negative or positive", None, None, sentiment140.SOURCE),
}


@dataclass(frozen=True)
class CatalogueEntry:
    """The description of a data set.

    The numbers of examples are None if they are unknown until the files are read. ``where`` is its file, or the folder
    of its files; "not here"; or why the files are not used.
    """

    name: str
    description: str
    train_examples: int | None
    test_examples: int | None
    where: str


def load_dataset(name: str) -> Dataset:
    """Return the data set called ``name``.

    Raises:
        OffbeatError: The name is unknown, or a file is broken.
        MissingDataError: The files are not found and cannot be downloaded.
    """
    _check_name(name)
    return DATASETS[name]()


def list_datasets() -> list[CatalogueEntry]:
    """Return the descriptions of all data sets, without loading or downloading them."""
    data_folder()
    return [_describe(name, _find) for name in _CATALOGUE]


def get_dataset(name: str) -> CatalogueEntry:
    """Download a data set if needed, unread, and return its description."""
    _check_name(name)
    return _describe(name, lambda source: _common_path(source.get()))


def _check_name(name: str) -> None:
    if name not in DATASETS:
        raise OffbeatError(f"unknown data set {name!r}: {did_you_mean(name, DATASETS)}")


def _describe(name: str, locate: Callable[[Source], str]) -> CatalogueEntry:
    description, train, test, source = _CATALOGUE[name]
    return CatalogueEntry(name, description, train, test, locate(source) if source else "comes with scikit-learn")


def _find(source: Source) -> str:
    try:
        paths = source.find()
    except OffbeatError as error:  # An incomplete folder of one data set must not hide the others.
        return str(error)
    return _common_path(paths) if paths else "not here"


def _common_path(paths: tuple[Path, ...]) -> str:
    return str(paths[0] if len(paths) == 1 else paths[0].parent)
