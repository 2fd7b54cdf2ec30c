import pytest
import torch
from offbeat_core.errors import OffbeatError
from safetensors.torch import load_file, save_file
from torch import nn

from offbeat.training.flat_model import FlatModel


class Averaging(nn.Linear):
    """A layer that puts a new tensor in its buffer's place."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.register_buffer("average", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average = 0.5 * self.average + 0.5 * x.detach().mean()
        return super().forward(x) * self.average


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Counting(nn.Linear):
    """A layer with a buffer of its own."""

    def __init__(self, buffer: torch.Tensor, persistent: bool = True) -> None:
        super().__init__(1, 1)
        self.register_buffer("count", buffer, persistent=persistent)


@pytest.fixture(scope="module", autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


@pytest.fixture(autouse=True)
def torch_is_left_alone() -> None:
    """These tests build modules, which draws from torch's generator; ``seeded`` puts it back."""


class TestVector:
    def test_parameters_come_in_the_order_of_named_parameters(self):
        module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        with torch.no_grad():
            module[0].weight.copy_(torch.tensor([[0.0, 1], [2, 3], [4, 5]]))
            module[0].bias.copy_(torch.tensor([6.0, 7, 8]))
            module[1].weight.copy_(torch.tensor([[9.0, 10, 11]]))
            module[1].bias.copy_(torch.tensor([12.0]))
        model = FlatModel(module)
        assert model.vector.tolist() == list(range(13))
        assert model.vector.dtype == torch.float32
        assert not model.vector.requires_grad

    def test_writing_the_vector_changes_the_output(self):
        model = FlatModel(nn.Linear(2, 1))
        model.vector.copy_(torch.tensor([2.0, 3.0, 10.0]))
        assert model.module(torch.tensor([[1.0, 1.0], [0.0, 2.0]])).tolist() == [[15.0], [16.0]]

    def test_backward_writes_into_gradient(self):
        model = FlatModel(nn.Linear(2, 1))
        model.module(torch.tensor([[3.0, 5.0]])).sum().backward()
        assert model.gradient.tolist() == [3.0, 5.0, 1.0]
        model.module(torch.tensor([[1.0, 1.0]])).sum().backward()
        assert model.gradient.tolist() == [4.0, 6.0, 2.0]

    def test_a_parameter_that_is_not_contiguous_keeps_its_values(self):
        module = nn.Linear(2, 3, bias=False)
        module.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        model = FlatModel(module)
        assert model.vector.tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
        assert module(torch.tensor([1.0, 0.0])).tolist() == [0.0, 1.0, 2.0]

    def test_tied_weights_count_once(self):
        model = FlatModel(Tied())
        assert model.vector.shape == (4,)
        model.vector.copy_(torch.tensor([0.0, 2.0, 3.0, 0.0]))
        # W = [[0, 2], [3, 0]], W² = 6 I.
        assert model.module(torch.tensor([1.0, 2.0])).tolist() == [6.0, 12.0]
        model.module(torch.tensor([1.0, 0.0])).sum().backward()
        # d/dW of 1ᵀ W W x at x = e₁: 1 (W x)ᵀ + (Wᵀ 1) xᵀ = [[0, 3], [0, 3]] + [[3, 0], [2, 0]].
        assert model.gradient.tolist() == [3.0, 3.0, 2.0, 3.0]

    def test_only_trainable_parameters_are_in_the_vector(self):
        module = nn.Sequential(nn.Linear(2, 2).half(), nn.Linear(2, 1))  # frozen ones may be of another type
        module[0].requires_grad_(False)
        module[1].bias.requires_grad_(False)
        frozen = [module[0].weight, module[0].bias, module[1].bias]
        before = [parameter.clone() for parameter in frozen]
        model = FlatModel(module)
        assert model.vector.tolist() == module[1].weight.flatten().tolist()
        assert list(model.named(model.vector)) == ["1.weight"]
        model.vector.zero_()
        assert all(map(torch.equal, frozen, before))
        assert all(parameter.grad is None for parameter in frozen)


def test_named_gives_each_parameter_its_name_and_shape():
    model = FlatModel(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
    assert {name: value.tolist() for name, value in model.named(torch.arange(13.0)).items()} == {
        "0.weight": [[0, 1], [2, 3], [4, 5]],
        "0.bias": [6, 7, 8],
        "2.weight": [[9, 10, 11]],
        "2.bias": [12],
    }


def test_saved_has_every_name_of_a_parameter_that_layers_share(tmp_path):
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
            self.head.weight = self.embedding.weight
            self.frozen = nn.Linear(1, 1, bias=False).requires_grad_(False)

    model = FlatModel(Language())
    save_file(model.saved(torch.arange(6.0)), tmp_path / "model")
    tensors = load_file(tmp_path / "model")
    table = [[0, 1], [2, 3], [4, 5]]
    assert {name: value.tolist() for name, value in tensors.items()} == {
        "embedding.weight": table,
        "head.weight": table,
    }
    other = Language()
    missing, unexpected = other.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["frozen.weight"], [])
    assert other.head.weight is other.embedding.weight
    assert other.head.weight.tolist() == table


class TestRefusals:
    @pytest.mark.parametrize(
        ("module", "layer"),
        [
            (nn.ModuleDict({"a": nn.Sequential(nn.Linear(3, 3), nn.BatchNorm2d(3))}), r"a\.1 keeps BatchNorm2d"),
            (nn.Sequential(nn.SyncBatchNorm(3)), "0 keeps SyncBatchNorm"),
            (nn.BatchNorm1d(3), "BatchNorm1d keeps BatchNorm1d"),
            (nn.InstanceNorm1d(3, track_running_stats=True), "InstanceNorm1d keeps InstanceNorm1d"),
        ],
    )
    def test_layers_with_running_statistics_are_refused_with_their_name(self, module, layer):
        advice = r'use GroupNorm instead, or set model\.batch_norm = "local"$'
        with pytest.raises(OffbeatError, match=rf"layer {layer} statistics: {advice}"):
            FlatModel(module)

    @pytest.mark.parametrize(
        "norm", [nn.GroupNorm(1, 3), nn.LayerNorm(3), nn.BatchNorm1d(3, track_running_stats=False)]
    )
    def test_norms_without_statistics_are_fine(self, norm):
        assert FlatModel(nn.Sequential(norm)).vector.tolist() == [1, 1, 1, 0, 0, 0]

    @pytest.mark.parametrize("module", [nn.ReLU(), nn.Linear(1, 1).requires_grad_(False)])
    def test_a_model_without_trainable_parameters_is_refused(self, module):
        with pytest.raises(OffbeatError, match="nothing to train"):
            FlatModel(module)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
    def test_other_floats_are_refused_with_the_name(self, dtype):
        module = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).to(dtype))
        with pytest.raises(OffbeatError, match=rf"parameter 1\.weight is {dtype}: .*\.float\(\)"):
            FlatModel(module)

    def test_parameters_that_are_not_dense_floats_are_refused_with_the_name(self):
        module = Counting(torch.zeros(1))
        module.extra = nn.Parameter(torch.ones(2, dtype=torch.complex64))
        with pytest.raises(OffbeatError, match=r"extra is torch\.complex64: make its real and imaginary parts two"):
            FlatModel(module)
        module.extra = nn.Parameter(torch.eye(2).to_sparse())
        with pytest.raises(OffbeatError, match=r"extra is torch\.sparse_coo: make it dense, with \.to_dense"):
            FlatModel(module)

    def test_a_layer_without_a_shape_is_refused_with_its_name(self):
        with pytest.raises(OffbeatError, match=r"parameter 1\.weight has no shape yet"):
            FlatModel(nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3)))


class TestLoad:
    @pytest.mark.parametrize(
        "buffer",
        [
            torch.arange(3),
            torch.tensor([True, False]),
            torch.tensor([1 + 2j]),
            torch.tensor([[1.0, 2.0]]).expand(3, 2),
            torch.ones(2, requires_grad=True),
            torch.eye(2).to_sparse(),
        ],
        ids=["integers", "bool", "complex", "expanded", "with a gradient", "sparse"],
    )
    def test_buffers_of_any_kind_are_kept(self, buffer):
        module = Counting(buffer)
        model = FlatModel(module)
        assert list(model.named(model.vector)) == ["weight", "bias"]
        model.load(torch.tensor([1.0, 0.0]))
        assert module.count is buffer
        assert torch.equal(module.count.to_dense(), buffer.detach().clone().to_dense())

    @pytest.mark.parametrize("change", [lambda count: count.add_(2.0), lambda count: count.resize_(5).fill_(7.0)])
    def test_a_buffer_that_was_written_or_resized_is_put_back(self, change):
        module = Counting(torch.tensor([1.0, 2.0]))
        model = FlatModel(module)
        change(module.count)
        model.load(model.vector.clone())
        assert module.count.tolist() == [1.0, 2.0]

    def test_buffers_are_put_back_even_if_they_were_replaced(self):
        model = FlatModel(nn.Sequential(Averaging()))
        x = torch.tensor([[3.0]])
        results = []
        for _ in range(3):
            model.load(torch.tensor([1.0, 0.0]))
            results.append(model.module(x).item())
        assert results == [6.0] * 3  # 3 · (½ + 3/2)
        assert model.module(x).item() == 7.5  # 3 · (½ · 2 + 3/2): without load it goes on

    def test_a_buffer_that_was_none_is_none_again(self):
        class Remembering(nn.Linear):
            def __init__(self) -> None:
                super().__init__(1, 1)
                self.register_buffer("last", None)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                before = 0.0 if self.last is None else self.last
                self.last = x.detach()
                return super().forward(x) + before

        model = FlatModel(nn.Sequential(Remembering()))
        x = torch.tensor([[3.0]])
        for _ in range(2):
            model.load(torch.tensor([1.0, 0.0]))
            assert model.module[0].last is None
            assert model.module(x).item() == 3.0
            assert model.module(x).item() == 6.0  # without load it remembers
        with torch.inference_mode():
            model.module(x)
        model.load(torch.tensor([1.0, 0.0]))
        assert model.module(x).requires_grad


def test_parameters_that_share_memory_but_are_two_are_refused():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight.data = module[0].weight.data
    with pytest.raises(OffbeatError, match=r"parameters 0\.weight and 1\.weight share their memory, but are two"):
        FlatModel(module)
    module[1].weight = module[0].weight
    assert list(FlatModel(module).named(torch.zeros(8))) == ["0.weight", "0.bias", "1.bias"]


def test_parameters_on_several_devices_are_refused():
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    with pytest.raises(OffbeatError, match=r"on several devices, 0\.bias on cpu and 1\.bias on meta: make all on one"):
        FlatModel(mixed)


@pytest.mark.parametrize("kind", ["trained", "frozen", "buffer"])
def test_tensors_without_values_are_refused_with_the_name(kind):
    layer = nn.Linear(2, 2, device="meta" if kind == "trained" else "cpu")
    if kind == "frozen":
        layer.weight = nn.Parameter(torch.ones(2, 2, device="meta"), requires_grad=False)
    if kind == "buffer":
        layer.register_buffer("weights", torch.ones(2, device="meta"))
    with pytest.raises(OffbeatError, match=r"model's 0\.weights? is on torch's device meta, without values"):
        FlatModel(nn.Sequential(layer)).to(torch.device("cpu"))


class TestLocalBatchNorm:
    def test_only_scale_and_shift_are_in_the_model(self):
        module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        model = FlatModel(module, batch_norm="local")
        assert list(model.named(model.vector)) == ["0.weight", "0.bias", "1.weight", "1.bias"]
        assert list(module.buffers()) == []
        assert set(module.state_dict()) == set(model.named(model.vector))

    @pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
    def test_normalises_by_the_current_minibatch(self, mode):
        module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3))
        model = FlatModel(module, batch_norm="local")
        model.load(torch.tensor([1.0, 2.0, 3.0, 10.0, 20.0, 30.0]))
        for scale in (1.0, 5.0):
            x = scale * torch.randn(50, 3).double() + 7
            z = (x - x.mean(dim=0)) / (x.var(dim=0, correction=0) + 1e-5).sqrt()
            expected = z * torch.tensor([1.0, 2.0, 3.0]) + torch.tensor([10.0, 20.0, 30.0])
            actual = module.train(mode)(x.float())
            torch.testing.assert_close(actual, expected.float(), rtol=1e-4, atol=1e-4)

    def test_instance_norm_with_statistics_is_treated_the_same(self):
        layer = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
        FlatModel(layer, batch_norm="local")
        plain = nn.InstanceNorm1d(3, affine=True)
        x = 4 * torch.randn(2, 3, 9) + 1
        for mode in (True, False):
            torch.testing.assert_close(layer.train(mode)(x), plain(x))
