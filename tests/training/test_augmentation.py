"""Images that are shifted and mirrored at random, equally by all trainers."""

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import words
from torch import nn

from offbeat.algorithms import LocalPlan
from offbeat.training import augmentation, models
from offbeat.training.augmentation import check_augmentation, crop_and_flip
from offbeat.training.flat_model import FlatModel
from offbeat.training.minibatches import gather
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.loop import LoopBackend
from tests.training.conftest import SEED, assert_alike, data_of, made
from tests.workloads import workload_of

NAME = "crop-and-flip"
SIZES = (7, 23, 3, 12, 1)  # examples a client
DATA = data_of(SIZES, 2, 6, 5)
PLAN = LocalPlan(steps=4, batch_size=5, lr=0.1)
MODELS = {
    "kernel": lambda: models.mlp((2, 6, 5), 4, [6]),
    "cnn": lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 4)),
}


def slowly(image, top, left, mirrored):
    """Return what becomes of an image, taking one pixel after the other from where it was."""
    channels, height, width = image.shape
    changed = image.new_zeros(image.shape)
    for channel, row, column in product(range(channels), range(height), range(width)):
        x = width - 1 - column if mirrored else column
        y, x = row + top - 4, x + left - 4
        if 0 <= y < height and 0 <= x < width:
            changed[channel, row, column] = image[channel, y, x]
    return changed


@pytest.mark.parametrize(
    ("top", "left", "mirrored", "expected"),
    [
        (4, 4, False, [[1, 2, 3], [4, 5, 6]]),
        (4, 4, True, [[3, 2, 1], [6, 5, 4]]),
        (3, 4, False, [[0, 0, 0], [1, 2, 3]]),
        (5, 4, False, [[4, 5, 6], [0, 0, 0]]),
        (4, 3, False, [[0, 1, 2], [0, 4, 5]]),
        (4, 3, True, [[2, 1, 0], [5, 4, 0]]),
        (4, 6, False, [[3, 0, 0], [6, 0, 0]]),
        (5, 5, True, [[0, 6, 5], [0, 0, 0]]),
        (0, 4, False, [[0, 0, 0], [0, 0, 0]]),
        (4, 8, True, [[0, 0, 0], [0, 0, 0]]),
    ],
)
def test_crops_by_hand(top, left, mirrored, expected, monkeypatch):
    image = torch.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
    assert slowly(image, top, left, mirrored).tolist() == [expected]
    # The highest numbers that still mean this.
    places = [-(-(place + 1) * 2**32 // 9) - 1 for place in (top, left)]
    drawn = [*places, 2**32 - 1 if mirrored else 2**31 - 1, 0]
    monkeypatch.setattr(augmentation, "words", lambda *_: np.array(drawn, np.uint64).reshape(4, 1, 1))
    zero = np.array([0])
    assert crop_and_flip(image[None, None], 1, zero, zero, 0).tolist() == [[[expected]]]


@settings(max_examples=30)
@given(
    shape=st.tuples(*[st.integers(1, 3)] * 3, *[st.integers(1, 10)] * 2),
    seed=st.integers(0, 2**64 - 1),
    who=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), min_size=3, max_size=3),
    step=st.integers(0, 10**6),
)
def test_each_image_has_its_own_random_numbers(shape, seed, who, step):
    visits, batch = shape[:2]
    inputs = torch.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    inputs.view(-1)[::7] = torch.inf
    before = inputs.clone()
    found = crop_and_flip(inputs, seed, *np.array(who[:visits]).T, step * batch)
    assert found.shape == inputs.shape
    for row, place in product(range(visits), range(batch)):
        top, left, side, _ = map(int, words(seed, 15, *who[row], step * batch + place).ravel())
        expected = slowly(inputs[row, place], top * 9 // 2**32, left * 9 // 2**32, side >= 2**31)
        assert torch.equal(found[row, place], expected)
    found.zero_()
    assert torch.equal(inputs, before)


def test_all_positions_and_both_orientations_are_equally_likely():
    each = 30
    image = torch.arange(1.0, 100.0).reshape(1, 9, 11)
    inputs = image.expand(3, 54 * each, 1, 9, 11)
    found = crop_and_flip(inputs, 4, np.array([0, 1, 0]), np.array([0, 0, 1]), 2 * 54 * each).flatten(0, 2)
    # Wherever it was cut, the middle shows where, and those beside it are within the image.
    where = (found[:, 4, 5] - 1).long()
    top, left = where // 11, where % 11 - 1
    mirrored = found[:, 4, 4] > found[:, 4, 6]
    counts = torch.bincount(top * 18 + left * 2 + mirrored, minlength=162)
    assert len(counts) == 162
    # χ² of 161 degrees of freedom: 161 ± 18.
    assert 161 - 4 * 18 < ((counts - each) ** 2 / each).sum() < 161 + 4 * 18


def make(kind, name="kernel"):
    return kind(workload_of(model_of(name), **DATA, augmentation=NAME))


def model_of(name):
    return made(lambda: FlatModel(MODELS[name]()))


def jobs_of(name, number=10, **changes):
    start = model_of(name).vector.clone()
    plans = [dataclasses.replace(PLAN, steps=1 + each % 4, **changes) for each in range(number)]
    return [Job(each % len(SIZES), each, 0, start, plan, "delta") for each, plan in enumerate(plans)]


def test_the_model_sees_augmented_minibatches(monkeypatch):
    trainer, shown = make(LoopBackend), []
    trainer._model.module.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0].clone()))
    chosen = []
    monkeypatch.setattr(
        "offbeat.training.workload.gather", lambda values, rows: (chosen.append(rows), gather(values, rows))[1]
    )
    trainer.train([Job(1, 6, 0, model_of("kernel").vector.clone(), PLAN, "delta")])
    assert len(shown) == 4
    for step, (inputs, rows) in enumerate(zip(shown, chosen[::2], strict=True)):
        for place, row in enumerate(rows):
            top, left, side, _ = map(int, words(SEED, 15, 1, 6, step * 5 + place).ravel())
            expected = slowly(DATA["inputs"][row], top * 9 // 2**32, left * 9 // 2**32, side >= 2**31)
            assert torch.equal(inputs[place], expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("changes", [{}, {"momentum": 0.5}, {"by_epochs": True}], ids=str)
def test_batched_visits_see_the_same_as_one_after_the_other(name, changes):
    jobs = jobs_of(name, **changes)
    assert_alike(make(VmapBackend, name).train(jobs), make(LoopBackend, name).train(jobs))


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (torch.zeros(4, 50, dtype=torch.int64), r"int64 of shape \(50,\)"),
        (torch.zeros(4, 50), r"float32 of shape \(50,\)"),
        (torch.zeros(4, 28, 28), r"float32 of shape \(28, 28\)"),
        (torch.zeros(4, 1, 8, 8, dtype=torch.int64), r"int64 of shape \(1, 8, 8\)"),
        (torch.zeros(4, 1, 1, 8, 8), r"float32 of shape \(1, 1, 8, 8\)"),
    ],
)
def test_inputs_that_are_not_images_are_refused_in_one_line(inputs, found):
    with pytest.raises(OffbeatError, match=rf"^data\.augmentation = 'crop-and-flip' .*{found}: leave it out$"):
        check_augmentation(NAME, inputs)
    check_augmentation(None, inputs)
    check_augmentation(NAME, torch.zeros(4, 1, 8, 8))


def test_inputs_by_name_are_refused_in_one_line():
    inputs = {"image": torch.zeros(4, 1, 8, 8), "age": torch.zeros(4)}
    with pytest.raises(OffbeatError, match=r"is for images, but the inputs are image, age: leave it out$"):
        check_augmentation(NAME, inputs)
    check_augmentation(None, inputs)
