"""The sites' examples for Offbeat's simulator, and the test set."""

from digits import SITES, site_data, test_data
from torch.utils.data import ConcatDataset, Dataset


def load() -> tuple[Dataset, Dataset]:
    """Return the examples of all sites, with the site of each, and the test set."""
    parts = [site_data(site) for site in range(SITES)]
    train = ConcatDataset(parts)
    train.users = [site for site, part in enumerate(parts) for _ in part]
    return train, test_data()
