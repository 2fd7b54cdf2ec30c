"""The clients: what data there is, who holds which examples of it, and how fast and reliable each device is."""

from offbeat.population.dataset import Dataset, MissingDataError
from offbeat.population.datasets import DATASETS, load_dataset
from offbeat.population.devices import Devices

__all__ = ["DATASETS", "Dataset", "Devices", "MissingDataError", "load_dataset"]
