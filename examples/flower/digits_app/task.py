"""Model, data and training of the app."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def make_model() -> nn.Module:
    """Return the initial model; the same for everybody."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load_data(partition: int, partitions: int, batch_size: int) -> DataLoader:
    """Return a partition's examples, shuffled in the same way each time."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().div(16).unsqueeze(1)
    mine = slice(partition, None, partitions)
    examples = TensorDataset(images[mine], torch.from_numpy(digits.target).long()[mine])
    return DataLoader(examples, batch_size, shuffle=True, generator=torch.Generator().manual_seed(partition))


def train(model: nn.Module, batches: DataLoader, epochs: int, lr: float) -> float:
    """Train in place; return the mean loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    model.train()
    losses = []
    for _ in range(epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Return the accuracy on all digits."""
    ((images, labels),) = load_data(0, 1, 2000)
    model.eval()
    return (model(images).argmax(1) == labels).float().mean().item()
