"""The built-in data sets, and checks of users' data."""

from offbeat.data.catalogue import DATASETS, load_dataset
from offbeat.data.dataset import Dataset, MissingDataError

__all__ = ["DATASETS", "Dataset", "MissingDataError", "load_dataset"]
