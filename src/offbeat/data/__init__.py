"""Data sets: the built-in ones, and checks of the user's own."""

from offbeat.data.catalogue import DATASETS, load_dataset
from offbeat.data.dataset import Dataset, MissingDataError

__all__ = ["DATASETS", "Dataset", "MissingDataError", "load_dataset"]
