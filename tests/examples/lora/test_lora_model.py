import pytest
import torch
from torch.nn import functional

from offbeat.training.flat_model import FlatModel
from tests.examples.lora.conftest import EXAMPLE, function
from tests.workloads import assert_batches_train_like_the_loop


def build(arguments, **more):
    torch.manual_seed(1)
    return FlatModel(function("lora_model.py", "model")(**arguments, **more))


@pytest.fixture(scope="module")
def causal(transformers, save):
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return save(transformers.LlamaModel(transformers.LlamaConfig(vocab_size=30_522, **shape)))


def tokens(sentences, length):
    found = torch.randint(1_000, 30_000, (sentences, length), generator=torch.Generator().manual_seed(2))
    found[::2, length // 2 :] = 0
    return found


def test_only_adapters_and_the_head_are_in_the_vector(base):
    # Two layers' query and value, 16 × 16: A (3, 16), B (16, 3); the head has 2 × 16 weights and 2 biases.
    trained, without_a = (build(base, rank=3, freeze_a=freeze_a) for freeze_a in (False, True))
    assert trained.vector.nbytes == 4 * (2 * 2 * (48 + 48) + 34)
    assert without_a.vector.nbytes == 4 * (2 * 2 * 48 + 34)
    names = list(trained.named(trained.vector))
    assert {name.split(".")[-3] for name in names if "lora" in name} == {"lora_A", "lora_B"}
    assert [name for name in names if "lora" not in name] == ["head.weight", "head.bias"]
    assert list(without_a.named(without_a.vector)) == [name for name in names if "lora_A" not in name]


def test_minilm_sends_as_many_bytes_as_the_page_says(minilm):
    table = {"name": "sentence-transformers/all-MiniLM-L6-v2"}
    table["sha256"] = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    count_bytes = function("what_travels.py", "count_bytes")
    matrices, head = 4 * 2 * 6 * 8 * 384, 4 * (2 * 384 + 2)  # six layers' query and value, of rank 8
    counted = count_bytes(function("lora_model.py", "model")(**table))
    assert counted == {"lora_A": matrices, "lora_B": matrices, "head": head, "frozen": counted["frozen"]}
    frozen = count_bytes(function("lora_model.py", "model")(**table, freeze_a=True))
    assert frozen == {"lora_B": matrices, "head": head, "frozen": counted["frozen"] + matrices}
    page = (EXAMPLE.parents[1] / "docs/concepts/fine-tuning.md").read_text("utf-8")
    assert f" {2 * matrices + head:,} |" in page
    assert f" {matrices + head:,} |" in page
    assert f"{counted['frozen']:,}; with `freeze_a` {frozen['frozen']:,}" in page


def test_frozen_a_is_the_same_on_all_machines(base):
    def a_of(seed, freeze_a):
        torch.manual_seed(seed)
        module = function("lora_model.py", "model")(**base, freeze_a=freeze_a)
        return torch.cat([part.flatten() for name, part in module.named_parameters() if "lora_A" in name])

    assert torch.equal(a_of(1, True), a_of(2, True))
    assert not torch.equal(a_of(1, False), a_of(2, False))
    # Uniform in ±1/√16, as PEFT draws it.
    for values in (a_of(1, True), a_of(1, False)):
        assert 0.24 < values.abs().max() <= 0.25
        assert abs(values.std() - 0.25 / 3**0.5) < 0.01


@pytest.mark.parametrize("freeze_a", [False, True])
def test_the_mean_of_the_products(base, freeze_a):
    """Averaging B with A frozen averages B A; averaging A and B apart does not."""
    model = build(base, rank=3, freeze_a=freeze_a)
    start, numbers = model.vector.clone(), torch.Generator().manual_seed(3)

    def products(vector):
        model.load(vector)
        return torch.stack(
            [
                layer.get_delta_weight("default")
                for layer in model.module.modules()
                if hasattr(layer, "get_delta_weight")
            ]
        ).detach()

    clients = [start + torch.randn(start.shape, generator=numbers) for _ in range(3)]
    of_mean = products(torch.stack(clients).mean(dim=0))
    mean = torch.stack([products(vector) for vector in clients]).mean(dim=0)
    assert mean.norm() > 1
    assert torch.allclose(of_mean, mean, atol=1e-4) is freeze_a


@pytest.mark.parametrize("kind", ["base", "causal"])
def test_padding_does_not_matter(kind, request):
    module = build(request.getfixturevalue(kind)).module
    sentences = tokens(3, 6)
    with torch.inference_mode():
        assert torch.allclose(module(functional.pad(sentences, (0, 10))), module(sentences), atol=1e-5)


@pytest.mark.parametrize("kind", ["base", "causal"])
def test_attention_is_that_of_the_base_model(kind, request):
    """With the mask that ``transformers`` documents, in which a model that looks back only does so."""
    module, sentences, calls = build(request.getfixturevalue(kind)).module, tokens(3, 6), []
    module.encoder.register_forward_hook(lambda *call: calls.append(call[-1].last_hidden_state))
    with torch.inference_mode():
        module(sentences)
        module.encoder(input_ids=sentences, attention_mask=(sentences != 0).long())
    ours, theirs = (states[sentences != 0] for states in calls)
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_training_draws_no_random_numbers(base):
    module = build(base).module.train()
    assert torch.equal(module(tokens(3, 6)), module(tokens(3, 6)))


@pytest.mark.parametrize("kind", ["base", "causal"])
def test_a_batch_of_clients_trains_like_one_after_the_other(kind, request):
    assert_batches_train_like_the_loop(build(request.getfixturevalue(kind)), tokens(16, 6))
