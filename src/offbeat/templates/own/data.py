"""The data of the experiment."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return training and test data: data sets of (input, label) pairs."""
    inputs, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    inputs = inputs.float() / 16  # 1,797 pictures of digits, 8 × 8 pixels of 0 … 16
    return TensorDataset(inputs[:1400], labels[:1400]), TensorDataset(inputs[1400:], labels[1400:])
