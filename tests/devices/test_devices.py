"""Trainers and simulations on a GPU, or else on the CPU with steps that are not recorded.

``make test-gpu`` runs it where nothing but PyTorch and a few packages is installed.
"""

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.algorithms import FedBuff, FedLaAvg, LocalPlan, Port
from offbeat.coordinator import Coordinator
from offbeat.population.availability import Always
from offbeat.population.devices.client_devices import ConstantLink, Devices
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.tensor_file import read_checkpoint, write_checkpoint
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.fit_check import check_fit
from offbeat.training.flat_model import FlatModel
from offbeat.training.models import cnn, mlp
from offbeat.training.objectives import accuracy
from offbeat.training.trainers.backend import Job
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.choice import choose_trainer, make_trainer
from offbeat.training.trainers.graph_loop import GraphBackend
from offbeat.training.trainers.loop import LoopBackend
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Examples, Objective, Workload

HAS_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="there is no CUDA GPU")

GPU = Accelerator(torch.device("cuda")) if HAS_GPU else CPU
CLIENTS, EXAMPLES = 6, 12
PLAN = LocalPlan(steps=3, batch_size=4, lr=0.05)
PLANS = {
    "plain": PLAN,
    "momentum": dataclasses.replace(PLAN, momentum=0.9, weight_decay=0.01, clip_norm=1.0),
    "adamw": dataclasses.replace(PLAN, optimizer="adamw", lr=0.001),
}
MODELS = {
    "mlp": lambda: mlp((3, 16, 16), 4, [8]),
    "tanh": lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.Tanh(), nn.Linear(8, 4)),
    "cnn": lambda: cnn((3, 16, 16), 4),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.Dropout(0.5), nn.Linear(8, 4)),
}


def workload(model, accelerator=GPU, **options):
    generator = torch.Generator().manual_seed(1)
    total = CLIENTS * EXAMPLES
    inputs = torch.randn(total, 3, 16, 16, generator=generator)
    examples = Examples(inputs, torch.randint(4, (total,), generator=generator))
    with torch.random.fork_rng():
        torch.manual_seed(2)
        flat = FlatModel(MODELS[model]() if isinstance(model, str) else model)
    shards = np.split(np.arange(total), CLIENTS)
    objective = Objective(cross_entropy, {"accuracy": accuracy})
    return Workload(flat, objective, examples, shards, 1, test=examples, **options).to(accelerator)


def make(name, made, plan=PLAN):
    """Return the trainer that a GPU gets."""
    if HAS_GPU:
        return make_trainer(name, made, plan=plan)
    if name == "loop":
        return Trainer(GraphBackend(made, record=lambda compute: compute))
    return Trainer(VmapBackend(made, batch_limit=8, padded=True, unfold_convolutions=name == "unfold"))


def jobs_of(made, plan=PLAN):
    start = made.model.vector.clone()
    plans = [dataclasses.replace(plan, steps=1 + client % 3) for client in range(CLIENTS)]
    return [Job(client, 0, 0, start, plan, "delta") for client, plan in enumerate(plans)]


def trained(name, model, plan=PLAN, accelerator=GPU, **options):
    made = workload(model, accelerator, **options)
    with accelerator.numerics():
        trainer = Trainer(LoopBackend(made)) if name == "reference" else make(name, made, plan)
        jobs = jobs_of(made, plan)
        if name == "reference":
            return trainer.collect(jobs)
        limit = trainer.batch_limit
        return [result for at in range(0, len(jobs), limit) for result in trainer.collect(jobs[at : at + limit])]


@pytest.mark.parametrize("plan", PLANS if HAS_GPU else ["plain"])
@pytest.mark.parametrize("model", ["mlp", "tanh", "cnn"] if HAS_GPU else ["cnn"])
@pytest.mark.parametrize("name", ["loop", "vmap", "unfold"])
def test_a_visit_is_near_the_cpus_loop(name, model, plan):
    results = trained(name, model, PLANS[plan])
    expected = trained("reference", model, PLANS[plan], CPU)
    for result, other in zip(results, expected, strict=True):
        assert result.vector.is_cuda == HAS_GPU
        error = (result.vector.cpu() - other.vector).norm() / other.vector.norm()
        assert error < (5e-2 if plan == "adamw" else 1e-4)  # AdamW divides small gradients by their own size
        assert result.loss == pytest.approx(other.loss, rel=1e-4)


@needs_gpu
@pytest.mark.parametrize(("name", "model"), [*product(["loop", "vmap"], ["mlp", "tanh", "cnn"]), ("loop", "dropout")])
def test_the_same_command_gives_the_same_bits(name, model):
    once, again = trained(name, model), trained(name, model)
    assert all(torch.equal(one.vector, other.vector) for one, other in zip(once, again, strict=True))


@needs_gpu
def test_dropout_is_not_batched():
    """In a batch its noise is drawn on the CPU, in the loop on the GPU."""
    made = workload("dropout")
    with GPU.numerics():
        assert choose_trainer(made, PLAN, CLIENTS)[0] == "loop"


@needs_gpu
@pytest.mark.parametrize("name", ["vmap", "unfold"])
@pytest.mark.parametrize("model", ["mlp", "tanh", "cnn"])
def test_bits_do_not_depend_on_the_batch(name, model):
    with GPU.numerics():
        made = workload(model)
        trainer, jobs = make(name, made), jobs_of(made)
        together = trainer.collect(jobs)
        apart = [trainer.collect([job])[0] for job in jobs[::-1]][::-1]
    assert all(torch.equal(one.vector, other.vector) for one, other in zip(together, apart, strict=True))


@pytest.mark.parametrize("precision", [pytest.param("tf32", marks=needs_gpu), "bf16"])
def test_other_precisions_are_near(precision):
    results = trained("unfold", "cnn", accelerator=dataclasses.replace(GPU, precision=precision))
    expected = trained("reference", "cnn", accelerator=CPU)
    for result, other in zip(results, expected, strict=True):
        assert 0 < (result.vector.cpu() - other.vector).norm() < 0.5 * other.vector.norm()


@needs_gpu
def test_data_that_stay_in_the_hosts_memory():
    made = workload("cnn", CPU).to(GPU, with_data=False)
    assert not made.train.inputs.is_cuda
    with GPU.numerics():
        results = make_trainer("loop", made, plan=PLAN).collect(jobs_of(made)[:1])
    assert torch.equal(results[0].vector, trained("loop", "cnn")[0].vector)


def test_evaluation_is_that_of_the_cpu():
    made, here = workload("cnn"), workload("cnn", CPU)
    loss, metrics = made.evaluator()(made.model.vector.clone())
    expected, others = here.evaluator()(here.model.vector.clone())
    assert loss == pytest.approx(expected, rel=1e-4)
    assert metrics == pytest.approx(others, abs=0.03)


@needs_gpu
def test_a_batch_that_does_not_fit_is_halved():
    made = workload(nn.Sequential(nn.Flatten(), nn.Linear(768, 15_000)))
    with GPU.numerics():
        trainer = make_trainer("vmap", made, plan=PLAN)
    torch.cuda.empty_cache()
    # Room for a few clients of 46 MB a vector, not for 64.
    most = torch.cuda.memory_reserved() + 2 * 2**30
    torch.cuda.set_per_process_memory_fraction(min(1.0, most / torch.cuda.mem_get_info()[1]))
    try:
        trainer.backend.batch_limit = 64
        with GPU.numerics():
            results = trainer.collect(jobs_of(made))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    assert trainer.batch_limit < 64
    assert trainer.notes[0].startswith("out of memory with 64 clients at once")
    assert all(result.vector.isfinite().all() for result in results)


@needs_gpu
def test_a_layer_without_a_deterministic_form_is_one_line():
    module = nn.Sequential(nn.Conv2d(3, 3, 1), nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(27, 4))
    made = workload(module)
    with GPU.numerics(), pytest.raises(OffbeatError, match="change that layer, or set deterministic = false"):
        check_fit(made.model, cross_entropy, *made.minibatch(torch.arange(4)), accelerator=GPU)


def world(algorithm):
    made = workload("mlp")
    fast = ConstantLink(np.full(CLIENTS, 1e9))
    devices = Devices(
        step_seconds=np.linspace(0.5, 1.5, CLIENTS),
        down=fast,
        up=fast,
        loss_probability=np.zeros(CLIENTS),
        availability=Always(),
        when_away="pause",
    )
    weights = torch.full((CLIENTS,), EXAMPLES, dtype=torch.float64)
    return Simulation(
        Coordinator(algorithm, made.model.vector.clone(), clients=CLIENTS, local=PLAN, data_weights=weights),
        devices,
        make("vmap", made),
        evaluate=made.evaluator(),
        evaluate_every_versions=2,
        stop=Stop(versions=6),
        seed=1,
    )


@pytest.mark.parametrize(
    "algorithm",
    [
        lambda: FedBuff(buffer_size=2, concurrency=4),
        lambda: FedLaAvg(cohort=3),
        lambda: Port(min_clients=2, concurrency=4),
    ],
)
def test_a_resumed_simulation_has_the_same_bits(algorithm, tmp_path):
    with GPU.numerics():
        whole = world(algorithm())
        evaluations = list(whole.run())
        half = world(algorithm())
        while half.coordinator.algorithm.version < 3:
            half.step()
        write_checkpoint(tmp_path / "state", half.state_dict())
        resumed = world(algorithm())
        resumed.load_state_dict(read_checkpoint(tmp_path / "state"))
        last = list(resumed.run())[-1]
    assert whole.model.is_cuda == HAS_GPU
    assert torch.equal(whole.model, resumed.model)
    assert last == evaluations[-1]
