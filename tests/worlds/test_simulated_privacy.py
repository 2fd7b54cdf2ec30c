"""Private simulations: masked and noisy sums of a small experiment."""

import math

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_private.accounting import epsilon
from offbeat_private.noise.correlated_noise import prefix_sum_error
from offbeat_private.noise.noise_rows import NoiseSource

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.buffers.noisy_sum import NoisySum
from offbeat.algorithms.components.buffers.secret import SecretSum
from offbeat.config.privacy_section import PrivacySection
from offbeat.simulation.masked_updates import MaskedUpdates
from offbeat.tensor_file import read_checkpoint, write_checkpoint
from offbeat.worlds.simulated_privacy import _open_sum, protect
from tests.worlds.private_simulations import FEDBUFF, MASKED, finished

CLIPPED = "{ clip_norm = 0.5 }"


def test_masked_sums_are_those_of_clipped_updates_up_to_rounding(simulation):
    # Masked updates are weighed as their uploads begin, others when they arrive; and they are larger.
    alike = (
        FEDBUFF.replace("buffer_size", "staleness = { name = 'constant' }, buffer_size"),
        "population.up_bytes_per_second={ distribution = 'constant', value = 1e12 }",
    )
    masked, clipped = simulation(MASKED, *alike), simulation(CLIPPED, *alike)
    assert isinstance(masked.coordinator.algorithm.buffer, SecretSum)
    assert isinstance(clipped.coordinator.algorithm.buffer, NoisySum)
    finished(masked)
    finished(clipped)
    assert masked.coordinator.statistics == clipped.coordinator.statistics
    sent = [[one.bytes_up for one in run.ended] for run in (masked, clipped)]
    assert sent[0] == [size and size + 420 for size in sent[1]]  # lost ones sent nothing
    step, length = 0.5 / (2**19 - 1), len(masked.model)
    distance = (masked.model - clipped.model).norm().item()
    assert 0 < distance < 6 * 10 * step * math.sqrt(length)  # training continues from models that differ


def test_coarse_numbers_show_in_the_model(simulation):
    fine, coarse = simulation(MASKED), simulation(MASKED.replace("20", "8"))
    finished(fine)
    finished(coarse)
    assert (fine.model - coarse.model).norm() > 0.01


@pytest.mark.parametrize("who", ["", "helper = 'here', "])
@pytest.mark.parametrize("mechanism", ["independent", "banded"])
def test_the_noise_of_the_first_version_has_its_deviation(simulation, who, mechanism):
    asked = f"{{ {who}min_clients = 2, clip_norm = 0.5, noise_multiplier = 3.0, max_participations = 4, "
    asked += f"min_separation = 3, mechanism = '{mechanism}' }}"
    still = ("local.lr=1e-12",)
    noisy = simulation(asked, *still, versions=1)
    initial = noisy.model.clone()
    finished(noisy)
    noise = (initial - noisy.model) * 4  # the mean over four places
    # In the first sum there is one row: σ C sens / √k, where sens = √k for independent noise.
    deviation = noise.std().item() / (3.0 * 0.5)
    if mechanism == "independent":
        assert deviation == pytest.approx(1.0, rel=0.1)
    else:
        assert 1.0 < deviation < 2.0


def test_noise_of_equal_seeds_is_equal_and_of_others_is_not(simulation):
    asked = "{ clip_norm = 0.5, noise_multiplier = 1.0, max_participations = 4 }"
    first, again, other = simulation(asked), simulation(asked), simulation(asked, seed=2)
    for one in (first, again, other):
        finished(one)
    assert torch.equal(first.model, again.model)
    assert not torch.equal(first.model, other.model)


BANDED = (
    "{ helper = 'here', min_clients = 3, clip_norm = 0.5, noise_multiplier = 1.0, max_participations = 3, "
    "min_separation = 2, mechanism = 'banded' }"
)
NOISY = "{ clip_norm = 0.5, noise_multiplier = 1.0, max_participations = 3, min_separation = 2 }"


@pytest.mark.parametrize(
    ("asked", "table"),
    [
        (MASKED, "fedbuff', buffer_size = 4, concurrency = 6"),
        (BANDED, "fedbuff', buffer_size = 4, concurrency = 6"),
        (NOISY, "fedbuff', buffer_size = 4, concurrency = 6"),
        (MASKED, "fedlaavg', cohort = 8, weighting = 'uniform'"),
        (MASKED, "mifa', weighting = 'uniform'"),
        (MASKED, "async_comm_sgd', weighting = 'uniform', pattern = { name = 'random', p = 0.3 }, period = 5.0"),
        (BANDED.replace("min_separation = 2, ", "").replace("= 3, mech", "= 99, mech"), "fedluck', period = 5.0"),
    ],
)
def test_a_resumed_run_ends_with_the_same_model(simulation, asked, table, tmp_path):
    changes = (f"algorithms={{ mine = {{ algorithm = '{table} }} }}",)
    whole = simulation(asked, *changes)
    for _ in range(80):
        whole.step()
    write_checkpoint(tmp_path / "state", whole.state_dict())
    finished(whole)
    resumed = simulation(asked, *changes)
    resumed.load_state_dict(read_checkpoint(tmp_path / "state"))
    finished(resumed)
    assert torch.equal(resumed.model, whole.model)
    assert list(resumed.coordinator.participation.counts()) == list(whole.coordinator.participation.counts())


def test_evaluations_say_what_was_spent(simulation):
    run = simulation("{ clip_norm = 0.5, noise_multiplier = 2.0, max_participations = 3, delta = 1e-4 }")
    *_, last = finished(run)
    most = max(run.coordinator.participation.counts())
    assert 1 <= most <= 3
    assert last.metrics["epsilon"] == epsilon(2.0, most, 1e-4)
    assert last.metrics["epsilon_replace_one"] == epsilon(2.0, most, 1e-4, replace_one=True)


def test_without_noise_any_participation_spends_everything(simulation):
    first, *_, last = finished(simulation(MASKED))
    assert (first.metrics["epsilon"], last.metrics["epsilon"]) == (0.0, math.inf)


def test_all_examples_weigh_the_same(simulation, monkeypatch):
    run = simulation(CLIPPED)
    seen = set()
    receive = run.coordinator.receive
    monkeypatch.setattr(run.coordinator, "receive", lambda *a, **k: seen.add(k["examples"]) or receive(*a, **k))
    finished(run)
    assert seen == {1}


@pytest.mark.parametrize(
    ("asked", "changes", "message"),
    [
        (
            "{ helper = 'here', clip_norm = 1.0, min_clients = 5 }",
            (),
            "algorithms.mine: privacy.min_clients must be at most 4, the updates of a sum, got 5",
        ),
        (
            MASKED,
            ("local.compression={ name = 'top_k', share = 0.1 }",),
            "algorithms.mine: masked updates cannot be compressed",
        ),
        (
            "{ clip_norm = 1.0, noise_multiplier = 1.0, max_participations = 1 }",
            (),
            "6 versions × 4 clients are more than the 20 participations",
        ),
        (CLIPPED, ("server.update_clip_norm=1.0",), "[privacy] does not work with server.aggregate"),
    ],
)
def test_what_does_not_go_together_is_one_line(simulation, asked, changes, message):
    with pytest.raises(OffbeatError) as caught:
        simulation(asked, *changes)
    assert message in str(caught.value)


def test_a_weight_above_one_is_refused_with_masks(digits, simulation, monkeypatch):
    run = simulation(MASKED)
    monkeypatch.setattr(run.coordinator.algorithm, "staleness", lambda age: 2.0)
    with pytest.raises(ValueError, match="fedbuff would count this update 2 times"):
        finished(run)


def test_a_light_weight_is_not_below_an_eighth(simulation, monkeypatch):
    light, eighth = simulation(MASKED), simulation(MASKED)
    monkeypatch.setattr(light.coordinator.algorithm, "staleness", lambda age: 1e-3)
    monkeypatch.setattr(eighth.coordinator.algorithm, "staleness", lambda age: 0.125)
    finished(light)
    finished(eighth)
    assert torch.equal(light.model, eighth.model)


def test_updates_are_scaled_by_their_staleness_as_their_uploads_begin(simulation, monkeypatch):
    found = []
    promise = MaskedUpdates.promise

    def spy(self, work, client, visit, divisor, scale):
        found.append(scale)
        return promise(self, work, client, visit, divisor, scale)

    monkeypatch.setattr(MaskedUpdates, "promise", spy)
    finished(simulation(MASKED))
    allowed = {(1 + staleness) ** -0.5 for staleness in range(10)}
    assert max(found) == 1.0 > min(found)
    assert set(found) <= allowed


def test_an_algorithm_that_is_used_again_has_one_noisy_sum():
    algorithm = FedBuff(buffer_size=3)
    section = PrivacySection(clip_norm=1.0)
    arguments = {"clients": 50, "length": 3, "seed": 1}
    protect(section, algorithm, **arguments)
    first = algorithm.buffer
    protect(section, algorithm, **arguments)
    assert isinstance(algorithm.buffer, NoisySum)
    assert algorithm.buffer is not first


@pytest.mark.parametrize(("mechanism", "bands"), [("independent", 1), ("banded", 2)])
def test_the_noise_of_a_model_is_that_of_the_sums_so_far(simulation, mechanism, bands):
    asked = "{ clip_norm = 0.5, noise_multiplier = 2.0, max_participations = 4, min_separation = 2, "
    asked += f"mechanism = '{mechanism}' }}"
    noisy = simulation(asked, "local.lr=1e-12", versions=12)
    initial, squares = noisy.model.clone(), []
    while noisy.coordinator.algorithm.version < 12:
        version = noisy.coordinator.algorithm.version
        noisy.step()
        if noisy.coordinator.algorithm.version > version:
            squares.append(((noisy.model - initial) * 4 / (2.0 * 0.5)).double().square().mean().item())
    found = math.sqrt(sum(squares) / len(squares))  # over coordinates and versions, in clip norms times σ
    assert found == pytest.approx(prefix_sum_error(4, 2, bands, 12), rel=0.15)


def test_the_helper_adds_whole_numbers_modulo_two_to_the_32():
    noise = NoiseSource(bytes(range(32)), 1000, noise_multiplier=2.0, largest=2**10)
    total = torch.full((1000,), 2**31 - 1, dtype=torch.int32)
    opened = _open_sum(noise)(3, total)
    assert opened.dtype == torch.int32
    difference = (opened.numpy().astype(np.int64) - (2**31 - 1)) % 2**32
    signed = np.where(difference >= 2**31, difference - 2**32, difference)
    assert np.array_equal(signed, noise.noise(3, [bytes([*[0] * 31, number]) for number in (1, 2, 3)]))


def test_without_noise_the_helper_only_opens():
    total = torch.arange(3, dtype=torch.int32)
    assert torch.equal(_open_sum(None)(1, total), total)


def test_a_run_whose_clients_have_spent_their_participations_says_so(simulation):
    spent = simulation("{ clip_norm = 0.5, max_participations = 1 }", "stop={ updates = 21 }")  # of 20 clients
    with pytest.raises(OffbeatError, match=r"no client may take part any more; end the run earlier by \[stop\]"):
        finished(spent)


COME_AND_GO = "population.availability={ name = 'alternating', groups = 2, period_seconds = 3.0 }"


def test_clients_that_come_and_go_do_not_hide_that_none_may_take_part(simulation):
    spent = simulation("{ clip_norm = 0.5, max_participations = 1 }", "stop={ updates = 21 }", COME_AND_GO)
    with pytest.raises(OffbeatError, match="no client may take part any more"):
        in_steps(spent)
    assert spent.coordinator.statistics.counted == 20


def test_nor_do_they_where_there_are_periods(simulation, monkeypatch):
    monkeypatch.setattr("offbeat.simulation.clock._MAX_IN_VAIN", 20)
    periodic = "algorithms={ mine = { algorithm = 'fedluck', period = 0.5, steps = [1, 1], compression = [1, 1] } }"
    spent = simulation("{ clip_norm = 0.5, max_participations = 1 }", "stop={ updates = 21 }", COME_AND_GO, periodic)
    with pytest.raises(OffbeatError, match=r"no update counted in the last \d+ visits and ticks"):
        in_steps(spent)
    assert spent.coordinator.statistics.counted == 20


def in_steps(simulation, most=20_000):
    """Run a simulation to its end, or for so many steps."""
    while not simulation.finished and most:
        simulation.step()
        most -= 1
