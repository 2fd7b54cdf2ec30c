"""The data sets by name."""

from collections.abc import Callable

from offbeat.errors import OffbeatError, did_you_mean
from offbeat.population import digits, fashion_mnist
from offbeat.population.dataset import Dataset

DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits.load,
    "fashion-mnist": fashion_mnist.load,
}


def load_dataset(name: str) -> Dataset:
    """Return the data set called ``name``.

    Raises:
        OffbeatError: There is none of that name, or one of its files is broken.
        MissingDataError: Its files are nowhere to be found.
    """
    if name not in DATASETS:
        raise OffbeatError(f"unknown data set {name!r}: {did_you_mean(name, DATASETS)}")
    return DATASETS[name]()
