"""Sealed sums: the server closes a buffer, a helper opens it, and only then is there a version."""

import pytest
import torch
from torch import Tensor

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.algorithms.components import ClosedBuffer
from offbeat.algorithms.components.buffers.wrappers import Wrapper
from offbeat.algorithms.components.staleness import constant
from tests.algorithms.case import started


def mask(number: int, length: int) -> Tensor:
    """Return what only the helper knows of the sum of this number."""
    generator = torch.Generator().manual_seed(100 + number)
    return torch.randint(-(10**6), 10**6, (length,), dtype=torch.int32, generator=generator)


def answer(closed: ClosedBuffer) -> Tensor:
    """Return the helper's answer to a sealed sum: the mask of its number."""
    return mask(int(closed.sealed[-2]), len(closed.sealed) - 2)


class Secret(Wrapper):
    """Hides each released sum of whole numbers behind a mask; the number and a checksum come behind it."""

    def start(self, run):
        super().start(run)
        self.number = 0

    def release(self, version):
        closed = self.inner.release(version)
        total = closed.total().round().to(torch.int32)
        masked = total + mask(self.number, len(total))
        sealed = torch.cat([masked, torch.tensor([self.number, int(total.sum())], dtype=torch.int32)])
        self.number += 1
        numbers = {"count": closed.count, "weight": closed.weight, "tallies": closed.tallies}
        return ClosedBuffer(version, lambda: pytest.fail("a sealed sum was read"), **numbers, sealed=sealed)

    def reveal(self, closed, answer):
        opened = closed.sealed[:-2] - answer
        if opened.sum() != closed.sealed[-1]:
            raise ValueError("the answer does not open the sum")
        numbers = {"count": closed.count, "weight": closed.weight, "tallies": closed.tallies}
        return ClosedBuffer(closed.version, opened.float, **numbers)

    def state_dict(self):
        return {"number": self.number, **self.inner.state_dict()}

    def load_state_dict(self, state):
        self.number = state["number"]
        self.inner.load_state_dict(state)


def secret(algorithm):
    if not algorithm.buffer.linear:
        raise ValueError(f"{algorithm.name} looks at single vectors, which cannot be hidden")
    return Secret(algorithm.buffer)


def fedbuff(is_secret=True, **changes):
    algorithm = FedBuff(**{"buffer_size": 2, "server_lr": 0.5, "staleness": constant(), "concurrency": 4} | changes)
    if is_secret:
        algorithm.wrap(secret)
    return algorithm


def fedavg(is_secret=True):
    algorithm = FedAvg(cohort=2, over_selection=1.5)
    if is_secret:
        algorithm.wrap(secret)
    return algorithm


ARRIVALS = [(0, 2, 8), (1, -6, 4), (2, 1, 1), (3, 3, -5), (4, 0, 2), (5, 10, 0), (6, 2, 2), (7, 4, 4)]


def let_work(algorithm, arrivals, plan, upload):
    """Let one client after the other work from the version that there is; return what ``receive`` says."""
    said = []
    for client, *entries in arrivals:
        algorithm.assign(client, plan)
        said.append(algorithm.receive(upload(client, algorithm.version, *entries)))
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
        assert int(algorithm.sealed[0].sealed[-2]) == number  # the oldest first
        assert algorithm.reveal(answer(algorithm.sealed[0])) is True
        assert (algorithm.version, len(algorithm.sealed)) == (number + 1, 3 - number)
    assert torch.equal(algorithm.model, plain.model)
    assert algorithm.version == plain.version == 4


def test_updates_that_come_while_a_sum_is_sealed_go_into_the_next(plan, upload):
    algorithm = fedbuff(server_lr=1.0)
    algorithm.start(torch.zeros(1), 9)
    let_work(algorithm, [(0, 2), (1, 4), (2, 100)], plan, upload)
    assert algorithm.buffer.count == 1
    algorithm.reveal(answer(algorithm.sealed[0]))
    assert algorithm.model.tolist() == [-3]
    let_work(algorithm, [(3, 100)], plan, upload)
    algorithm.reveal(answer(algorithm.sealed[0]))
    assert algorithm.model.tolist() == [-103]


def test_every_revealed_step_starts_from_the_version_before_it(plan, upload):
    versions = []

    class Watched(FedBuff):
        def next_model(self, model, closed):
            versions.append(closed.version)
            return super().next_model(model, closed)

    algorithm = Watched(buffer_size=2, staleness=constant())
    algorithm.wrap(secret)
    algorithm.start(torch.zeros(2), 9)
    let_work(algorithm, ARRIVALS[:6], plan, upload)
    while algorithm.sealed:
        algorithm.reveal(answer(algorithm.sealed[0]))
    assert algorithm.model.tolist() == [-5, -5]
    assert versions == [0, 1, 2]


@pytest.mark.parametrize("revealed", [0, 1, 2])
def test_sealed_sums_are_saved_and_opened_after_a_restart(revealed, plain, plan, upload, same_state):
    algorithm = started(fedbuff(), (1.0, 2.0))
    let_work(algorithm, ARRIVALS[:7], plan, upload)
    for _ in range(revealed):
        algorithm.reveal(answer(algorithm.sealed[0]))
    restored = fedbuff()
    restored.load_state_dict(algorithm.state_dict())
    assert same_state(restored.state_dict(), algorithm.state_dict())
    assert len(restored.sealed) == 3 - revealed
    assert restored.sealed[0].sealed.dtype == torch.int32
    let_work(restored, ARRIVALS[7:], plan, upload)
    while restored.sealed:
        restored.reveal(answer(restored.sealed[0]))
    assert torch.equal(restored.model, plain.model)
    assert restored.version == 4


@pytest.mark.parametrize("make", [fedbuff, fedavg])
def test_a_wrong_answer_changes_nothing(make, plan, upload, same_state):
    algorithm = make()
    algorithm.start(torch.zeros(2), 9)
    for client in range(2):
        algorithm.assign(client, plan)
    for client in range(2):
        algorithm.receive(upload(client, 0, 1, 2))
    if not algorithm.sealed:
        algorithm.tick()
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match="the answer does not open the sum"):
        algorithm.reveal(answer(algorithm.sealed[0]) + 1)
    assert same_state(algorithm.state_dict(), before)
    assert (algorithm.version, len(algorithm.sealed)) == (0, 1)
    assert algorithm.reveal(answer(algorithm.sealed[0])) is True
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
    algorithm.receive(upload(first, version, 4, 8, examples=1))
    return algorithm.receive(upload(first + 1, version, 8, -4, examples=3))


def test_a_round_hands_out_no_work_until_it_is_revealed(plan, upload, same_state):
    algorithm = started(fedavg(), (0.0, 0.0))
    assert close_a_round(algorithm, plan, upload) is False
    assert (algorithm.version, algorithm.round, algorithm.slots(), len(algorithm.sealed)) == (0, 0, 0, 1)
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match="client 5 cannot be assigned"):
        algorithm.assign(5, plan)
    # The third client is late, and neither its loss nor a deadline ends the round a second time.
    assert not algorithm.wants(2, 0)
    assert algorithm.receive(upload(2, 0, 100, 100)) is False
    assert algorithm.drop(2, 0) is False
    assert algorithm.tick() is False
    assert same_state(algorithm.state_dict(), before)

    assert algorithm.reveal(answer(algorithm.sealed[0])) is True
    assert (algorithm.version, algorithm.round, algorithm.slots()) == (1, 1, 3)
    assert algorithm.model.tolist() == [-(4 + 3 * 8) / 4, -(8 - 3 * 4) / 4]
    assert not algorithm.wants(2, 0)
    assert algorithm.receive(upload(2, 0, 100, 100)) is False


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
        assert sealed.reveal(answer(sealed.sealed[0])) is True
        assert torch.equal(plain.model, sealed.model)
        assert (plain.version, plain.round) == (sealed.version, sealed.round)


def test_a_round_without_updates_is_not_sealed(plan):
    algorithm = started(fedavg(), (0.0, 0.0))
    for client in range(3):
        algorithm.assign(client, plan)
    assert [algorithm.drop(client, 0) for client in range(3)] == [False] * 3
    assert (list(algorithm.sealed), algorithm.version, algorithm.round, algorithm.slots()) == ([], 0, 1, 3)
