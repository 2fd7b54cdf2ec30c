"""A project's own model, data, training and evaluation, for every framework."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

SITES = 5
TRAIN = 1500  # examples, 300 a site; the other 297 are the test set


class Net(nn.Sequential):
    """A perceptron, which is the same at first wherever it is made."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def site_data(site: int) -> TensorDataset:
    """Return the examples of a site, 0 to SITES − 1."""
    return _digits(slice(site, TRAIN, SITES))


def test_data() -> TensorDataset:
    """Return the test set."""
    return _digits(slice(TRAIN, None))


def _digits(part: slice) -> TensorDataset:
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().div(16)
    return TensorDataset(images[part], torch.from_numpy(digits.target).long()[part])


def train(model: nn.Module, data: TensorDataset, lr: float = 0.05) -> None:
    """Train in place for an epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for images, labels in DataLoader(data, batch_size=10, shuffle=True):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Return the accuracy on the test set."""
    images, labels = test_data().tensors
    return (model(images).argmax(1) == labels).float().mean().item()
