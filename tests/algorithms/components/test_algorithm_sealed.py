"""Sealed sums: the server closes a buffer, a helper opens it, and only then is there a version."""

import pytest
import torch
from torch import Tensor

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.algorithms.components import ClosedBuffer
from offbeat.algorithms.components.buffers.secret import SecretSum, secret
from offbeat.algorithms.components.weights import constant
from tests.algorithms.case import started


def mask(number: int, length: int) -> Tensor:
    """Return the mask of a client."""
    generator = torch.Generator().manual_seed(100 + number)
    return torch.randint(-(2**31), 2**31, (length,), dtype=torch.int64, generator=generator).to(torch.int32)


def opened(algorithm, closed: ClosedBuffer) -> Tensor:
    """Return a sealed sum without its masks."""
    total = algorithm.buffer.masked_sum(closed)
    for entry in closed.entries:
        total -= mask(entry.update.client, len(total))
    return total


def masked(update):
    """Return an update of whole numbers behind its client's mask."""
    vector = update.vector.round().to(torch.int32) + mask(update.client, len(update.vector))
    return update._replace(vector=vector, share=bytes([update.client]))


def receive(algorithm, update) -> bool:
    return algorithm.receive(masked(update) if isinstance(algorithm.buffer, SecretSum) else update)


def open_first(algorithm) -> bool:
    return algorithm.reveal(opened(algorithm, algorithm.sealed[0]))


SECRET = secret(step=1.0, bound=1000, least=1)


def fedbuff(is_secret=True, **changes):
    algorithm = FedBuff(**{"buffer_size": 2, "server_lr": 0.5, "staleness": constant(), "concurrency": 4} | changes)
    if is_secret:
        algorithm.wrap(SECRET)
    return algorithm


def fedavg(is_secret=True):
    algorithm = FedAvg(cohort=2, over_selection=1.5, weighting="uniform")
    if is_secret:
        algorithm.wrap(SECRET)
    return algorithm


ARRIVALS = [(0, 2, 8), (1, -6, 4), (2, 1, 1), (3, 3, -5), (4, 0, 2), (5, 10, 0), (6, 2, 2), (7, 4, 4)]


def let_work(algorithm, arrivals, plan, upload):
    """Let one client after the other work from the version that there is; return what ``receive`` says."""
    said = []
    for client, *entries in arrivals:
        algorithm.assign(client, plan)
        said.append(receive(algorithm, upload(client, algorithm.version, *entries)))
    return said


@pytest.fixture
def plain(plan, upload):
    """The run of FedBuff in which nothing is sealed."""
    algorithm = fedbuff(is_secret=False)
    algorithm.start(torch.tensor([1.0, 2.0]), 9)
    assert let_work(algorithm, ARRIVALS, plan, upload) == [False, True] * 4
    return algorithm


def test_a_continuous_schedule_goes_on_while_sums_are_sealed(plain, plan, upload):
    algorithm = started(fedbuff(), (1.0, 2.0))
    assert let_work(algorithm, ARRIVALS, plan, upload) == [False] * 8
    assert (algorithm.version, algorithm.model.tolist(), len(algorithm.sealed), algorithm.slots()) == (0, [1, 2], 4, 4)
    for number in range(4):
        assert [e.update.client for e in algorithm.sealed[0].entries] == [
            2 * number,
            2 * number + 1,
        ]  # the oldest first
        assert open_first(algorithm) is True
        assert (algorithm.version, len(algorithm.sealed)) == (number + 1, 3 - number)
    assert torch.equal(algorithm.model, plain.model)
    assert algorithm.version == plain.version == 4


def test_every_revealed_step_starts_from_the_version_before_it(plan, upload):
    versions = []

    class Watched(FedBuff):
        def next_model(self, model, closed):
            versions.append(closed.version)
            return super().next_model(model, closed)

    algorithm = Watched(buffer_size=2, staleness=constant())
    algorithm.wrap(SECRET)
    algorithm.start(torch.zeros(2), 9)
    let_work(algorithm, ARRIVALS[:6], plan, upload)
    while algorithm.sealed:
        open_first(algorithm)
    assert algorithm.model.tolist() == [-5, -5]
    assert versions == [0, 1, 2]


@pytest.mark.parametrize("revealed", [0, 1, 2])
def test_sealed_sums_are_saved_and_opened_after_a_restart(revealed, plain, plan, upload, same_state):
    algorithm = started(fedbuff(), (1.0, 2.0))
    let_work(algorithm, ARRIVALS[:7], plan, upload)
    for _ in range(revealed):
        open_first(algorithm)
    restored = fedbuff()
    restored.load_state_dict(algorithm.state_dict())
    assert same_state(restored.state_dict(), algorithm.state_dict())
    assert len(restored.sealed) == 3 - revealed
    let_work(restored, ARRIVALS[7:], plan, upload)
    while restored.sealed:
        open_first(restored)
    assert torch.equal(restored.model, plain.model)
    assert restored.version == 4


@pytest.mark.parametrize("make", [fedbuff, fedavg])
def test_a_wrong_answer_changes_nothing(make, plan, upload, same_state):
    algorithm = make()
    algorithm.start(torch.zeros(2), 9)
    for client in range(2):
        algorithm.assign(client, plan)
    for client in range(2):
        receive(algorithm, upload(client, 0, 1, 2))
    if not algorithm.sealed:
        algorithm.tick()
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match="the opened sum is out of range: a client's mask was wrong"):
        algorithm.reveal(opened(algorithm, algorithm.sealed[0]) + 999)
    assert same_state(algorithm.state_dict(), before)
    assert (algorithm.version, len(algorithm.sealed)) == (0, 1)
    assert open_first(algorithm) is True
    assert algorithm.model.tolist() == ([-0.5, -1] if make is fedbuff else [-1, -2])


@pytest.mark.parametrize("make", [fedbuff, fedavg])
@pytest.mark.parametrize("is_secret", [True, False])
def test_without_a_sealed_sum_there_is_nothing_to_reveal(make, is_secret, same_state):
    algorithm = make(is_secret)
    algorithm.start(torch.zeros(2), 9)
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match="no sum is sealed: there is nothing to reveal"):
        algorithm.reveal(mask(0, 2))
    assert same_state(algorithm.state_dict(), before)


def test_a_start_forgets_sealed_sums(plan, upload):
    algorithm = started(fedbuff(), (0.0, 0.0))
    let_work(algorithm, ARRIVALS[:2], plan, upload)
    algorithm.start(torch.zeros(2), 9)
    assert list(algorithm.sealed) == []


def close_a_round(algorithm, plan, upload, first=0):
    """Let the first two of three clients of a round be heard; the third is late."""
    version = algorithm.version
    for client in range(first, first + 3):
        algorithm.assign(client, plan)
    receive(algorithm, upload(first, version, 4, 8))
    return receive(algorithm, upload(first + 1, version, 8, -4))


def test_a_round_hands_out_no_work_until_it_is_revealed(plan, upload, same_state):
    algorithm = started(fedavg(), (0.0, 0.0))
    assert close_a_round(algorithm, plan, upload) is False
    assert (algorithm.version, algorithm.round, algorithm.slots(), len(algorithm.sealed)) == (0, 0, 0, 1)
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match="client 5 cannot be assigned"):
        algorithm.assign(5, plan)
    # The third client is late, and neither its loss nor a deadline ends the round a second time.
    assert not algorithm.wants(2, 0)
    assert receive(algorithm, upload(2, 0, 100, 100)) is False
    assert algorithm.drop(2, 0) is False
    assert algorithm.tick() is False
    assert same_state(algorithm.state_dict(), before)

    assert open_first(algorithm) is True
    assert (algorithm.version, algorithm.round, algorithm.slots()) == (1, 1, 3)
    assert algorithm.model.tolist() == [-6, -2]
    assert not algorithm.wants(2, 0)
    assert receive(algorithm, upload(2, 0, 100, 100)) is False


@pytest.mark.parametrize("is_saved", [False, True])
def test_sealed_rounds_end_with_the_model_of_plain_ones(is_saved, plan, upload):
    plain, sealed = fedavg(is_secret=False), fedavg()
    for algorithm in (plain, sealed):
        algorithm.start(torch.tensor([1.0, 2.0]), 9)
    for first in (0, 3, 6, 2):
        assert close_a_round(plain, plan, upload, first) is True
        assert close_a_round(sealed, plan, upload, first) is False
        if is_saved:
            state, sealed = sealed.state_dict(), fedavg()
            sealed.load_state_dict(state)
            assert (sealed.slots(), len(sealed.sealed), sealed.wants(first + 2, sealed.version)) == (0, 1, False)
        assert open_first(sealed) is True
        assert torch.equal(plain.model, sealed.model)
        assert (plain.version, plain.round) == (sealed.version, sealed.round)


def test_a_round_without_updates_is_not_sealed(plan):
    algorithm = started(fedavg(), (0.0, 0.0))
    for client in range(3):
        algorithm.assign(client, plan)
    assert [algorithm.drop(client, 0) for client in range(3)] == [False] * 3
    assert (list(algorithm.sealed), algorithm.version, algorithm.round, algorithm.slots()) == ([], 0, 1, 3)
