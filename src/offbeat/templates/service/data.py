"""The data: the server evaluates on its own, each site trains on its own."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Subset, TensorDataset

SITES = 3


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return training and test data; the server evaluates on the latter."""
    inputs, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    inputs = inputs.float() / 16  # 1,797 pictures of digits, 8 × 8 pixels of 0 … 16
    return TensorDataset(inputs[:1400], labels[:1400]), TensorDataset(inputs[1400:], labels[1400:])


def site(number: int) -> Subset[tuple[torch.Tensor, ...]]:
    """Return a site's examples, here a third of the training data.

    A site of your own reads its files instead.
    """
    train, _ = load()
    return Subset(train, range(number % SITES, len(train), SITES))
