import pytest
from torch import nn
from torch.nn import functional

from offbeat.errors import OffbeatError
from offbeat.training.loss_modules import name_of_loss
from offbeat.training.objectives import LOSSES


class Unhashable:
    """A loss that cannot be a key of a dict."""

    __hash__ = None

    def __call__(self, outputs, labels):
        return (outputs - labels).mean()


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (nn.CrossEntropyLoss(), "cross_entropy"),
        (nn.CrossEntropyLoss(label_smoothing=0.1), "cross_entropy"),
        (nn.BCEWithLogitsLoss(), "bce"),
        (nn.MSELoss(), "mse"),
        (functional.cross_entropy, "cross_entropy"),
        (functional.binary_cross_entropy_with_logits, "bce"),
        (functional.mse_loss, "mse"),
        (nn.L1Loss(), None),
        (lambda outputs, labels: outputs.mean(), None),
        (Unhashable(), None),
    ],
)
def test_the_built_in_loss_of_a_module_or_function(loss, name):
    assert name_of_loss(loss) == name
    assert name is None or name in LOSSES


def test_a_module_that_does_not_return_a_mean_or_a_class_is_refused():
    with pytest.raises(OffbeatError, match=r"^loss = L1Loss: must return the mean: leave reduction out$"):
        name_of_loss(nn.L1Loss(reduction="none"))
    with pytest.raises(OffbeatError, match=r"^loss = L1Loss: is a class: pass a module, L1Loss\(\)$"):
        name_of_loss(nn.L1Loss)
