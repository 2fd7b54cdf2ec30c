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
    order = torch.Generator().manual_seed(0)  # the same in every visit, so that frameworks can be compared
    for images, labels in DataLoader(data, batch_size=10, shuffle=True, generator=order):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()


@torch.no_grad()
def report(model: nn.Module) -> str:
    """Return a line with loss and accuracy on the test set."""
    images, labels = test_data().tensors
    outputs = model(images)
    accuracy = (outputs.argmax(1) == labels).float().mean()
    return f"test loss {cross_entropy(outputs, labels):.4f}, accuracy {accuracy:.4f}"
