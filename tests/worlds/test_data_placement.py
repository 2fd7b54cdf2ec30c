import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import softmax_regression
from offbeat.training.workload import Examples, Objective, Workload
from offbeat.worlds.data_placement import fits_on_device

CUDA = Accelerator(torch.device("cuda"))


@pytest.fixture
def workload():
    """A workload whose examples take 1,000 bytes."""
    with torch.random.fork_rng(devices=[]):
        model = FlatModel(softmax_regression((8,), 2))
    train = Examples(torch.zeros(20, 8), torch.zeros(20, dtype=torch.int64))
    test = Examples(torch.zeros(5, 8), torch.zeros(5, dtype=torch.int64))
    return Workload(model, Objective(cross_entropy), train, [np.arange(20)], 1, test=test)


@pytest.mark.parametrize(("free", "fits"), [(2000, True), (1999, False)])
def test_automatically_the_data_take_at_most_half_of_the_free_memory(workload, monkeypatch, free, fits):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**9))
    assert fits_on_device(workload, CUDA, "auto") is fits


def test_a_choice_is_kept_and_without_a_gpu_there_is_none(workload):
    assert fits_on_device(workload, CUDA, "always")
    assert not fits_on_device(workload, CUDA, "never")
    assert fits_on_device(workload, CPU, "auto")
