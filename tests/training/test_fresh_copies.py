import functools
import threading

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.training.fresh_copies import fresh, has_state, on_device


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, outputs, labels):
        self.calls += 1
        return self.calls

    def method(self, outputs, labels):
        return self(outputs, labels)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.dropout = nn.Dropout()


class Slots:
    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0

    def __call__(self, outputs, labels):
        self.calls += 1
        return self.calls


def remembering(memory, outputs, labels):
    memory["calls"] = memory.get("calls", 0) + 1
    return memory["calls"]


def own(outputs, labels):
    return cross_entropy(outputs, labels)


@pytest.mark.parametrize(
    "function",
    [
        own,
        cross_entropy,
        max,
        nn.CrossEntropyLoss(weight=torch.ones(2)),
        functools.partial(cross_entropy, weight=torch.ones(2)),
        functools.partial(own, torch.ones(2), scale=2.0, name="x", other=None, inner=own),
    ],
)
def test_functions_and_losses_of_torch_stay(function):
    assert not has_state(function)
    assert fresh(function, training=True) is function


@pytest.mark.parametrize("of", [lambda it: it, lambda it: it.method, lambda it: functools.partial(it)])
def test_objects_begin_in_their_first_state(of):
    counting = Counting()
    for _ in range(2):
        copied = fresh(of(counting), training=True)
        assert [copied(0, 0), copied(0, 0)] == [1, 2]
    assert counting.calls == 0


@pytest.mark.parametrize(
    "make",
    [
        Slots,
        lambda: functools.partial(remembering, {}),
        lambda: functools.partial(lambda outputs, labels, memory: remembering(memory, outputs, labels), memory={}),
        lambda: functools.partial(lambda outputs, labels, inner: inner(outputs, labels), inner=Counting()),
    ],
)
def test_what_else_may_change_begins_in_its_first_state(make):
    given = make()
    for _ in range(2):
        copied = fresh(given, training=True)
        assert [copied(0, 0), copied(0, 0)] == [1, 2]


def test_a_module_is_in_the_mode_of_its_use():
    module = Noisy()
    assert fresh(module, training=True).dropout.training
    copied = fresh(module, training=False)
    assert not copied.dropout.training
    copied.mean += 1
    assert module.dropout.training
    assert module.mean.item() == 0


def test_an_object_that_cannot_be_copied_is_one_line():
    counting = Counting()
    counting.lock = threading.Lock()
    with pytest.raises(OffbeatError, match=r"^Counting cannot be copied for each visit .*TypeError.*: make it a func"):
        fresh(counting, training=True)


def test_weights_move_with_the_model():
    weight, meta = torch.ones(2), torch.device("meta")
    module = on_device(nn.CrossEntropyLoss(weight=weight), meta)
    assert module.weight.device == meta
    made = on_device(functools.partial(cross_entropy, weight=weight, ignore_index=3), meta)
    assert (made.func, made.keywords["weight"].device, made.keywords["ignore_index"]) == (cross_entropy, meta, 3)
    assert on_device(own, meta) is own
    assert weight.device.type == "cpu"
