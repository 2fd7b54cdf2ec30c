"""The model of the experiment."""

from torch import Tensor, nn


class Net(nn.Module):
    """A perceptron with one hidden layer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return a score for each class."""
        return self.layers(inputs)
