"""Single promises of every algorithm; what holds whatever comes is in test_contract.py."""

import dataclasses
import inspect
import math
import pickle
from typing import Annotated, get_args, get_origin

import pytest
import torch
from torch import Tensor

from offbeat.algorithms import ALGORITHMS, Compression, LocalPlan, Update
from offbeat.algorithms.components.hyper_parameters import hyper_parameters
from offbeat.algorithms.components.server_optimizer import adam, momentum
from offbeat.config.algorithm_table import hyper_parameters_of
from tests.algorithms.case import built_in, cases_of

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
STEERED = [
    name for name, algorithm in ALGORITHMS.items() if "server_optimizer" in inspect.signature(algorithm).parameters
]


def may_return(algorithm, client):
    return algorithm.returns_in(client) == algorithm.round


def run(algorithm, plan, vectors, model=None):
    """Let 100 clients, or the one that has all the data, work in waves; all of a wave bring the same vector."""
    clients = 1 if algorithm.pooled else 100
    algorithm.start(torch.zeros(2) if model is None else model, clients)
    last_counted = {}
    for vector in vectors:
        version = algorithm.version
        wave = [client for client in range(clients) if may_return(algorithm, client)][: algorithm.slots()]
        for client in wave:
            algorithm.assign(client, plan)
        for client in wave:
            if algorithm.wants(client, version):
                base, n, since = torch.full((2,), version / 3), 1 + client % 7, last_counted.get(client)
                algorithm.receive(Update(client, version, vector, n, 1, 1.0, base, since, 0.01, 0.01, plan=plan))
                last_counted[client] = version
        if algorithm.period is not None:
            algorithm.tick()
    return algorithm


@pytest.mark.parametrize("name", built_in())
def test_every_algorithm_is_under_contract(name):
    kind = ALGORITHMS[name]
    missing = (
        f"tests/algorithms/test_{name}.py lacks its contract cases: "
        f'write CASES = [Case("{name}", lambda: {kind.__name__}(…), places=…)], see tests/algorithms/case.py'
    )
    if not any(type(case.make()) is kind for case in cases_of(name)):
        pytest.fail(missing, pytrace=False)


def test_the_names_of_cases_differ():
    names = [case.name for name in built_in() for case in cases_of(name)]
    assert len(set(names)) == len(names)


def test_the_state_is_flat_and_plain(case, plan):
    algorithm = case.started()
    for client in range(case.places):
        algorithm.assign(client, plan)
    algorithm.receive(case.update(0, 0))
    for state in (algorithm.state_dict(), case.busy(plan).state_dict()):
        assert all(isinstance(key, str) for key in state)
        refused = state.pop("refused_steps")
        assert refused == []
        assert all(isinstance(value, Tensor | int | float | str | None) for value in state.values())


def test_a_state_shares_no_memory_with_the_algorithm(kind, plan, same_state):
    def scribble(state):
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()

    algorithm, loaded = kind.busy(plan), kind.make()
    expected, state = algorithm.state_dict(), algorithm.state_dict()
    loaded.load_state_dict(state)
    scribble(state)
    assert same_state(algorithm.state_dict(), expected)
    assert same_state(loaded.state_dict(), expected)


def test_a_state_loads_over_a_run_in_progress(kind, plan, same_state):
    fresh, busy = kind.started(), kind.busy(plan)
    state = fresh.state_dict()
    busy.load_state_dict(state)
    assert same_state(busy.state_dict(), state)
    assert busy.model.tolist() == [1, 1, 1]


def test_start_copies_the_model_and_begins_at_zero(kind):
    model, algorithm = torch.ones(3), kind.make()
    algorithm.start(model, kind.clients)
    model.zero_()
    assert algorithm.model.tolist() == [1, 1, 1]
    assert algorithm.result.tolist() == [1, 1, 1]
    assert algorithm.version == 0
    assert algorithm.slots() == kind.places
    assert algorithm.round in (None, 0)


def test_start_again_forgets_the_run_before(kind, plan, same_state):
    algorithm = kind.busy(plan)
    algorithm.start(torch.ones(3), kind.clients)
    assert same_state(algorithm.state_dict(), kind.started().state_dict())


def test_assign_refuses_a_client_that_does_not_exist(kind, plan, same_state):
    algorithm = kind.started()
    before = algorithm.state_dict()
    for client in (-1, kind.clients, kind.clients + 100):
        with pytest.raises(ValueError, match=f"client must be in 0 … {kind.clients - 1}, got {client}"):
            algorithm.assign(client, plan)
    assert same_state(algorithm.state_dict(), before)


def test_unknown_clients_are_not_wanted(kind, same_state):
    algorithm = kind.started()
    before = algorithm.state_dict()
    assert not any(algorithm.wants(client, version) for client in (-1, 0, 99) for version in (-1, 0, 7))
    assert not any(algorithm.drop(client, version) for client in (-1, 0, 99) for version in (-1, 0, 7))
    assert same_state(algorithm.state_dict(), before)


def test_the_runs_options_of_local_steps_pass_through(case):
    """FedProx's term, momentum and the like pass through every algorithm; only steps, lr and compression may change."""
    options = [{"mu": 0.1, "clip_norm": 3.0}, {"momentum": 0.9, "weight_decay": 0.01}, {"optimizer": "adamw"}]
    if case.plain_gradients:
        options.append({"compression": Compression("sign")})
    for option in options:
        local = LocalPlan(steps=2, batch_size=7, lr=0.1, **option)
        if case.plain_gradients:
            with pytest.raises(ValueError, match="leave compression, momentum, mu and optimizer out"):
                case.started().assign(0, local)
            continue
        planned = case.started().assign(0, local)
        changed = {"steps": planned.steps, "lr": planned.lr, "compression": planned.compression}
        if planned.mu != local.mu:
            changed["mu"] = 0.0
            assert case.started().pooled  # nobody else is there to stay near
        assert planned == dataclasses.replace(local, **changed)


def test_an_impossible_plan_gives_no_work(case, same_state):
    algorithm = case.started()
    before = algorithm.state_dict()
    most = LocalPlan(steps=2**31 - 1, batch_size=1, lr=0.1)
    try:
        algorithm.assign(0, most)
    except ValueError:
        assert same_state(algorithm.state_dict(), before)
    else:
        assert algorithm.wants(0, 0)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("async_comm_sgd fadas fedavg fedbuff feddyn fedluck fednova ringmaster scaffold", ("delta", True, 1)),
        ("fedfa", ("delta", True, 5)),
        ("fedcompass port", ("delta", False, 1)),
        ("ringleader", ("delta", False, math.inf)),
        ("ace ca2fl fedlaavg mifa", ("difference", True, 1)),
        ("area fedasync sequential_sgd", ("params", False, 1)),
    ],
)
def test_payload_linear_and_releases_of_built_in_algorithms(names, expected):
    for algorithm in (ALGORITHMS[name]() for name in names.split()):
        assert (algorithm.payload, algorithm.buffer.linear, algorithm.buffer.releases) == expected


@every_algorithm
def test_every_number_among_the_hyper_parameters_has_bounds(name):
    for key, hint in hyper_parameters(ALGORITHMS[name]).items():
        assert hint not in (int, float), key
        if get_origin(hint) is Annotated:
            bound = get_args(hint)[1]
            below = (bound.gt if bound.ge is None else bound.ge) - 1
            with pytest.raises(ValueError, match=f"{key} must be .*got {below}"):
                ALGORITHMS[name](**{key: below})


@every_algorithm
def test_no_autograd_graph_grows_behind_the_model(name, plan):
    vectors = [torch.ones(2, requires_grad=True)] * 3
    algorithm = run(ALGORITHMS[name](), plan, vectors, torch.zeros(2, requires_grad=True))
    assert algorithm.version > 0
    assert not algorithm.model.requires_grad
    assert not algorithm.result.requires_grad


@every_algorithm
def test_an_algorithm_can_be_pickled(name, same_state):
    algorithm = ALGORITHMS[name]()
    copy = pickle.loads(pickle.dumps(algorithm))
    assert type(copy) is type(algorithm)
    assert hyper_parameters_of(copy) == hyper_parameters_of(algorithm)
    copy.start(torch.zeros(2), clients=1 if algorithm.pooled else 100)
    algorithm.start(torch.zeros(2), clients=1 if algorithm.pooled else 100)
    assert same_state(copy.state_dict(), algorithm.state_dict())


@pytest.mark.parametrize("name", STEERED)
def test_a_server_optimizer_without_memory_changes_nothing_and_adam_does(name, plan, vector):
    vectors = [vector(3, -1), vector(0.5, 2), vector(-7, 1), vector(2, 2)]
    plain, steered, adaptive = (
        run(ALGORITHMS[name](server_optimizer=optimizer), plan, vectors)
        for optimizer in (None, momentum(beta=0), adam())
    )
    assert plain.version == steered.version == adaptive.version > 1
    assert torch.equal(plain.model, steered.model)
    assert plain.model.abs().max() > 0.1
    assert not torch.allclose(plain.model, adaptive.model, rtol=0.01)
