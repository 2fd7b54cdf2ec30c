"""The loss on the training set, measured beside what is measured on the test set."""

from torch import Tensor, arange

from offbeat.training.evaluation import Evaluator

TRAINING_LOSS = "training_loss"
"""Its name among the metrics."""
EXAMPLES = 10_000
"""On how many training examples it is measured, at most."""


class WithTrainingLoss:
    """Measures a model on the test set and, by its loss alone, on training examples.

    Args:
        on_test: Measures loss and metrics on the test set.
        on_training: Measures the loss on training examples.
    """

    def __init__(self, on_test: Evaluator, on_training: Evaluator) -> None:
        self._on_test = on_test
        self._on_training = on_training

    def __call__(self, vector: Tensor) -> tuple[float, dict[str, float]]:
        """Return (mean loss, value of each metric) at ``vector``, ``(d,)``, the training loss among the metrics.

        Raises:
            OffbeatError: The model, the loss or a metric fails.
        """
        loss, metrics = self._on_test(vector)
        training_loss, _ = self._on_training(vector)
        return loss, {**metrics, TRAINING_LOSS: training_loss}


def evenly_chosen(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``EXAMPLES`` examples, as far from each other as can be; all, ``(n, …)``, if there are no more."""
    number = len(labels)
    if number <= EXAMPLES:
        return inputs, labels
    chosen = arange(EXAMPLES) * number // EXAMPLES
    return inputs[chosen], labels[chosen]
