"""Hooks of the user's model: each trainer runs them, or refuses the model."""

from collections.abc import Callable

import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from offbeat.algorithms import LocalPlan
from offbeat.training import models
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.trainer import Trainer
from tests.training.conftest import data_of, made
from tests.workloads import workload_of

PLAN = LocalPlan(steps=5, batch_size=4, lr=0.5)


def mask(module: nn.Sequential) -> RemovableHandle:
    """Train only half of the first layer's weights."""
    keep = torch.arange(8.0).remainder(2)[:, None]
    return module[1].weight.register_hook(lambda gradient: gradient * keep)


def frozen_bias(module: nn.Sequential) -> RemovableHandle:
    """Do not train the last layer's bias."""

    def clear(bias: Tensor) -> None:
        assert bias.grad is not None
        bias.grad.zero_()

    return module[3].bias.register_post_accumulate_grad_hook(clear)


def scaled_gradients(module: nn.Sequential) -> RemovableHandle:
    """Scale the gradients that leave the last layer."""
    return module[3].register_full_backward_hook(lambda _, inputs, outputs: (3 * inputs[0],))


def scaled_outputs_gradients(module: nn.Sequential) -> RemovableHandle:
    """Scale the gradients that enter the last layer."""
    return module[3].register_full_backward_pre_hook(lambda _, outputs: (3 * outputs[0],))


def scaled_outputs(module: nn.Sequential) -> RemovableHandle:
    """Scale what the last layer computes."""
    return module[3].register_forward_hook(lambda _, inputs, outputs: 3 * outputs)


def scaled_inputs(module: nn.Sequential) -> RemovableHandle:
    """Scale what the model gets."""
    return module.register_forward_pre_hook(lambda _, inputs: (3 * inputs[0],))


PARAMETER_HOOKS = [mask, frozen_bias]
BACKWARD_HOOKS = [scaled_gradients, scaled_outputs_gradients]
FORWARD_HOOKS = [scaled_outputs, scaled_inputs]
Hook = Callable[[nn.Sequential], RemovableHandle]


def perceptron() -> nn.Sequential:
    return made(lambda: models.mlp((6,), 3, [8]))


def make(name: str, module: nn.Module, workers: int = 1) -> Trainer:
    data = data_of((18, 12), 6, classes=3)
    return make_trainer(name, workload_of(FlatModel(module), **data), plan=PLAN, workers=workers)  # pyright: ignore[reportArgumentType]


def trained(trainer: Trainer) -> Tensor:
    start = torch.cat([parameter.detach().reshape(-1) for parameter in perceptron().parameters()])
    jobs = [Job(client, 0, 0, start, PLAN, "delta") for client in (0, 1)]
    return torch.stack([result.vector for result in trainer.collect(jobs)])


def deltas(name: str, hook: Hook | None) -> Tensor:
    """Train the perceptron with a hook."""
    module = perceptron()
    if hook:
        hook(module)
    return trained(make(name, module))


@pytest.mark.parametrize("hook", PARAMETER_HOOKS + BACKWARD_HOOKS + FORWARD_HOOKS)
def test_the_default_trainer_runs_hooks_as_the_loop_does(hook):
    expected = deltas("loop", hook)
    assert (expected - deltas("loop", None)).norm() > 0.05 * expected.norm()  # the hook matters
    torch.testing.assert_close(deltas("auto", hook), expected)


def unseen(module: nn.Sequential) -> RemovableHandle:
    """Change nothing, so that a comparison of results would not find it."""
    return module.register_full_backward_hook(lambda *_: None)


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (mask, "its parameter 1.weight has a hook"),
        (frozen_bias, "its parameter 3.bias has a hook"),
        (scaled_gradients, "its layer 3 has a backward hook"),
        (scaled_outputs_gradients, "its layer 3 has a backward hook"),
        (unseen, "the model has a backward hook"),
    ],
)
def test_vmap_refuses_hooks_on_gradients_in_one_line(hook, name):
    module = perceptron()
    handle = hook(module)
    with pytest.raises(OffbeatError) as refusal:
        make("vmap", module)
    expected = f"trainer = 'vmap': this model cannot be trained in batches ({name}): use 'loop'"
    assert str(refusal.value) == expected
    handle.remove()
    assert make("vmap", module).name == "vmap"


@pytest.mark.parametrize("hook", FORWARD_HOOKS)
def test_vmap_runs_forward_hooks(hook):
    torch.testing.assert_close(deltas("vmap", hook), deltas("loop", hook))


@pytest.mark.parametrize("hook", PARAMETER_HOOKS)
def test_processes_refuse_hooks_on_parameters_in_one_line(hook):
    """Pickle leaves such hooks out without an error."""
    module = perceptron()
    handle = hook(module)
    with pytest.raises(OffbeatError, match=r"^trainer = 'processes': .*parameter \d\.\w+ has a hook.*: use 'loop'$"):
        make("processes", module, workers=2)
    handle.remove()
    make("processes", module, workers=2)


def test_hooks_on_parameters_keep_the_loop_in_one_process():
    module = perceptron()
    mask(module)
    assert make("loop", module, workers=2)._start_processes is None


@pytest.mark.parametrize("hook", PARAMETER_HOOKS + BACKWARD_HOOKS + FORWARD_HOOKS)
def test_a_removed_hook_does_not_change_the_choice(hook):
    module = perceptron()
    handle = hook(module)
    assert make("auto", module).name == "loop"
    handle.remove()
    assert make("auto", module).name == "vmap"


def test_a_forward_of_a_layers_own_is_run():
    module, plain = perceptron(), perceptron()
    layer = module[3]
    layer.forward = lambda inputs: 3 * nn.Linear.forward(layer, inputs)  # pyright: ignore[reportAttributeAccessIssue]
    plain[3].register_forward_hook(lambda _, inputs, outputs: 3 * outputs)
    torch.testing.assert_close(trained(make("auto", module)), trained(make("loop", plain)))
