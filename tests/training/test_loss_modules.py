from functools import partial

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn import functional

from offbeat.training.loss_modules import check_loss, ignored_target, name_of_loss, weight_of
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
        (nn.NLLLoss(ignore_index=3), "nll_loss"),
        (partial(functional.cross_entropy, ignore_index=3), "cross_entropy"),
        (partial(nn.BCEWithLogitsLoss()), "bce"),
        (nn.L1Loss(), None),
        (lambda outputs, labels: outputs.mean(), None),
        (Unhashable(), None),
    ],
)
def test_the_built_in_loss_of_a_module_or_function(loss, name):
    assert name_of_loss(loss) == name
    assert name in (None, "nll_loss", *LOSSES)


def test_a_module_that_does_not_return_a_mean_or_a_class_is_refused():
    with pytest.raises(OffbeatError, match=r"^loss = L1Loss: must return the mean: leave reduction out$"):
        check_loss("loss", nn.L1Loss(reduction="none"))
    with pytest.raises(OffbeatError, match=r"^loss = L1Loss: is a class: pass a module, L1Loss\(\)$"):
        check_loss("loss", nn.L1Loss)
    with pytest.raises(OffbeatError, match=r"^model.loss = cross_entropy: must return the mean"):
        check_loss("model.loss", partial(functional.cross_entropy, reduction="sum"))
    check_loss("loss", nn.KLDivLoss(reduction="batchmean"))
    check_loss("loss", Unhashable())


class Temperature(nn.Module):
    def __init__(self, *, trained):
        super().__init__()
        self.log_t = nn.Parameter(torch.zeros(()), requires_grad=trained)


def test_a_module_with_parameters_to_train_is_refused():
    with pytest.raises(OffbeatError) as caught:
        check_loss("loss", Temperature(trained=True))
    assert str(caught.value) == (
        "loss = Temperature: its parameter log_t would not be trained: move it into the model, which can return the "
        'loss itself (loss = "model")'
    )
    check_loss("loss", Temperature(trained=False))


def test_settings_of_a_cross_entropy():
    weight = torch.ones(3)
    for make in (nn.CrossEntropyLoss, lambda **settings: partial(functional.cross_entropy, **settings)):
        assert ignored_target(make()) == -100
        assert ignored_target(make(ignore_index=4)) == 4
        assert weight_of(make(weight=weight)) is weight
        assert weight_of(make()) is None
