"""The data sets by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from offbeat.data.builtin import cifar10, digits, fashion_mnist, mnist, sentiment140, sst2
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source, own_folder
from offbeat.errors import OffbeatError, did_you_mean

DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits.load,
    "mnist": mnist.load,
    "fashion-mnist": fashion_mnist.load,
    "cifar10": cifar10.load,
    "sst2": sst2.load,
    "sentiment140": sentiment140.load,
}

# What each holds, how many examples to train on and to test, and where its files are, if it has any.
_ABOUT: dict[str, tuple[str, int | None, int | None, Source | None]] = {
    "digits": ("handwritten digits, 8 × 8 grey pixels, 10 classes", 1_433, 364, None),
    "mnist": ("handwritten digits, 28 × 28 grey pixels, 10 classes", 60_000, 10_000, mnist.SOURCE),
    "fashion-mnist": ("pictures of clothes, 28 × 28 grey pixels, 10 classes", 60_000, 10_000, fashion_mnist.SOURCE),
    "cifar10": ("pictures of things and animals, 32 × 32 colour pixels, 10 classes", 50_000, 10_000, cifar10.SOURCE),
    "sst2": ("sentences from film reviews, negative or positive", 6_920, 1_821, sst2.SOURCE),
    "sentiment140": ("tweets by user, negative or positive", None, None, sentiment140.SOURCE),
}


@dataclass(frozen=True)
class Entry:
    """What is known of a data set without loading it.

    Attributes:
        name: Its name in a configuration.
        description: What it holds, in a few words.
        train_examples: How many examples there are to train on; None where that is known only once it is read.
        test_examples: How many there are to test; None likewise.
        where: Its file, or the folder with its files; "not here"; or why they are not taken.
    """

    name: str
    description: str
    train_examples: int | None
    test_examples: int | None
    where: str


def load_dataset(name: str) -> Dataset:
    """Return the data set called ``name``.

    Raises:
        OffbeatError: There is none of that name, or one of its files is broken.
        MissingDataError: Its files are nowhere to be found.
    """
    _check_name(name)
    return DATASETS[name]()


def list_datasets() -> list[Entry]:
    """Return what is known of every data set; nothing is loaded or downloaded.

    Raises:
        OffbeatError: ``$OFFBEAT_DATA`` is no folder.
    """
    own_folder()
    return [_entry(name, _find) for name in _ABOUT]


def get_dataset(name: str) -> Entry:
    """Return what is known of a data set after making sure that its files are there; they are not read.

    Raises:
        OffbeatError: There is no data set of that name, or ``$OFFBEAT_DATA`` is no folder or holds only part.
        MissingDataError: Its files are nowhere, nor can they be downloaded.
    """
    _check_name(name)
    return _entry(name, _get)


def _check_name(name: str) -> None:
    if name not in DATASETS:
        raise OffbeatError(f"unknown data set {name!r}: {did_you_mean(name, DATASETS)}")


def _entry(name: str, where: Callable[[Source], str]) -> Entry:
    description, train, test, source = _ABOUT[name]
    return Entry(name, description, train, test, where(source) if source else "comes with scikit-learn")


def _find(source: Source) -> str:
    try:
        paths = source.find()
    except OffbeatError as error:  # One half-filled folder is no reason not to list the others.
        return str(error)
    return _place(paths) if paths else "not here"


def _get(source: Source) -> str:
    return _place(source.get())


def _place(paths: tuple[Path, ...]) -> str:
    return str(paths[0] if len(paths) == 1 else paths[0].parent)
