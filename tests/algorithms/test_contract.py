"""The contract of every algorithm with its driver, for calls in any order.

``case`` is each of the CASES in the algorithms' tests in turn; single promises are in test_contract_basics.py. There
are four kinds of algorithms:

- rounds: a client that was assigned in the open round is not assigned again in it; the round ends by ``receive``,
  ``drop`` or ``tick``, and takes all open work with it;
- periods: all clients work except those that uploaded and may not return yet; only ``tick`` makes versions;
- groups: all clients work except those that were heard and wait for their group; time passes with every call, and
  groups have deadlines;
- neither: a fixed number of clients work at a time, in the order in which they come; ``tick`` does nothing.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offbeat.algorithms import Algorithm, Update
from tests.algorithms.case import cases_of
from tests.effort import cases


def may_return(algorithm: Algorithm, client: int) -> bool:
    return algorithm.returns_in(client) == algorithm.round


KINDS = {
    "assign": 8,
    "arrive": 8,
    "drop": 3,
    "duplicate": 1,
    "foreign": 1,
    "broken": 2,
    "reload": 1,
    "tick": 2,
    "speed": 2,
}
STEPS = st.tuples(
    st.sampled_from([kind for kind, share in KINDS.items() for _ in range(share)]),
    st.integers(0, 5),
    st.integers(0, 31),
)
SCRIPTS = st.lists(STEPS, min_size=20, max_size=120)

BROKEN: list[Callable[[Update, int], dict[str, Any]]] = [  # all kinds are in test_client_update.py
    lambda update, version: {"version": version + 1},
    lambda update, version: {"client": 6},
    lambda update, version: {"vector": torch.zeros(len(update.vector) + 1)},
    lambda update, version: {"vector": torch.zeros(len(update.vector), dtype=torch.float64)},
    lambda update, version: {"examples": 0},
    lambda update, version: {"steps": -1},
    lambda update, version: {"normaliser": math.nan},
]


class World:
    """An undisturbed algorithm, a twin that is saved and loaded in between, and what the contract says of both."""

    def __init__(self, case: Any, plan: Any, same_state: Callable[..., bool]) -> None:
        self.case, self.plan, self.same_state = case, plan, same_state
        self.algorithm, self.twin = case.started(), case.started()
        self.periods = self.algorithm.period is not None
        self.groups = case.arrival_groups
        self.rounds = self.algorithm.round is not None and not self.periods and not self.groups
        self.now = 0.0
        self.open: dict[int, int] = {}
        self.lapsed: set[int] = set()
        self.had_turn: set[int] = set()  # who may not be assigned now
        self.assigned = self.counted = 0
        self.last_counted: dict[int, int] = {}
        self.sent: dict[int, Update] = {}
        self.models: list[tuple[Tensor, Tensor]] = []
        self.saved: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def at_work(self) -> set[int]:
        return set(self.open) - self.lapsed

    def wants(self, client: int, version: int) -> bool:
        is_fresh = self.algorithm.version - version < self.case.delay_bound
        return self.open.get(client) == version and is_fresh

    def slots(self) -> int:
        if self.case.takes_all_comers and self.had_turn - set(self.open):  # somebody of this round is back
            return 0
        return self.case.places - len(self.had_turn if self.rounds else self.at_work() | self.had_turn)

    def call(self, change: Callable[[Algorithm], Any]) -> Any:
        """Do the same to both; they answer alike."""
        opened = self.algorithm.round
        self.now += self.groups
        self.algorithm.now = self.twin.now = self.now
        answer, twins = change(self.algorithm), change(self.twin)
        assert answer == twins
        if self.algorithm.round != opened:
            assert self.algorithm.round == opened + 1
            self.had_turn = {client for client in self.had_turn if not may_return(self.algorithm, client)}
            if self.rounds:
                assert not self.had_turn
                assert not (self.open and self.algorithm.wants_all)
                self.open, self.lapsed = {}, set()
        if self.groups:
            self.had_turn = {client for client in range(self.case.clients) if not may_return(self.algorithm, client)}
        return answer

    def assign(self, client: int, choice: int) -> None:
        if self.slots() > 0 and client not in self.had_turn:
            plan = self.call(lambda algorithm: algorithm.assign(client, self.plan))
            assert plan == self.plan or self.case.own_plan
            self.open[client] = self.algorithm.version
            self.lapsed.discard(client)
            self.had_turn |= {client} if self.rounds else set()
            self.assigned += 1
        elif self.rounds or client in self.had_turn:
            self.refused(lambda algorithm: algorithm.assign(client, self.plan))

    def arrive(self, client: int, choice: int) -> None:
        version = self.open.get(client, choice % (self.algorithm.version + 1))
        self.receive(self.case.update(client, version, choice, self.last_counted.get(client)))

    def foreign(self, client: int, choice: int) -> None:
        version = choice % (self.algorithm.version + 1)
        self.receive(self.case.update(client, version, choice, self.last_counted.get(client)))

    def duplicate(self, client: int, choice: int) -> None:
        """Send an update again, unless it would pass for the one of a later visit, which the client sends afresh."""
        update = self.sent.get(client)
        if update is not None and not self.wants(client, update.version):
            self.receive(update)

    def receive(self, update: Update) -> None:
        client, expected = update.client, self.wants(update.client, update.version)
        before, version = self.algorithm.state_dict(), self.algorithm.version
        assert self.algorithm.wants(client, update.version) is expected
        made = self.call(lambda algorithm: algorithm.receive(update))
        assert self.algorithm.version == version + made
        assert self.same_state(self.algorithm.state_dict(), before) is not expected
        assert not made or (expected and not self.periods)
        if expected:
            self.counted += 1
            self.last_counted[client] = update.version
            self.open.pop(client, None)
            self.lapsed.discard(client)
            self.had_turn |= {client} if self.periods else set()
            assert not self.algorithm.wants(client, update.version)
        self.sent[client] = update

    def drop(self, client: int, choice: int) -> None:
        own = self.open.get(client)
        version = own if own is not None and choice < 28 else choice
        expected = own == version and client not in self.lapsed
        before, number, slots = self.algorithm.state_dict(), self.algorithm.version, self.slots()
        self.lapsed |= {client} if expected else set()
        made = self.call(lambda algorithm: algorithm.drop(client, version))
        assert self.algorithm.version == number + made
        assert self.same_state(self.algorithm.state_dict(), before) is not expected
        assert not made or (expected and not self.periods)
        if expected and not self.rounds:
            freed = self.algorithm.slots() - slots
            assert freed == 1 or (freed > 1 and made and self.groups)
            assert self.algorithm.wants(client, version) is self.wants(client, version)

    def broken(self, client: int, choice: int) -> None:
        update = self.case.update(client, self.open.get(client, 0), choice, self.last_counted.get(client))
        changes = [change(update, self.algorithm.version) for change in BROKEN]
        changes += self.case.also_broken if client in self.open else ()
        self.refused(lambda algorithm: algorithm.receive(update._replace(**changes[choice % len(changes)])))

    def refused(self, change: Callable[[Algorithm], Any]) -> None:
        before = self.algorithm.state_dict()
        for algorithm in (self.algorithm, self.twin):
            with pytest.raises(ValueError, match=r"\w"):
                change(algorithm)
        assert self.same_state(self.algorithm.state_dict(), before)

    def reload(self, client: int, choice: int) -> None:
        state = self.twin.state_dict()
        copy = {key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()}
        self.saved.append((state, copy))
        self.twin = self.case.make()
        self.twin.load_state_dict(state)

    def tick(self, client: int, choice: int) -> None:
        before, number, opened = self.algorithm.state_dict(), self.algorithm.version, self.algorithm.round
        if self.groups:
            is_due, waiting = self.algorithm.deadline() <= self.now + 1, len(self.had_turn)
            makes = self.call(lambda algorithm: algorithm.tick())
            assert makes is (len(self.had_turn) < waiting)
            assert self.algorithm.version == number + makes
            assert is_due or self.same_state(self.algorithm.state_dict(), before)
            return
        if self.periods:
            ends, makes = True, self.case.idle_versions or len(self.had_turn) > 0
        else:
            ends = self.rounds and len(self.had_turn) > 0
            makes = ends and len(self.had_turn) > len(self.open)
        assert self.call(lambda algorithm: algorithm.tick()) is makes
        assert self.algorithm.version == number + makes
        if ends:
            assert self.algorithm.round == opened + 1
        else:
            assert self.same_state(self.algorithm.state_dict(), before)

    def speed(self, client: int, choice: int) -> None:
        before = self.algorithm.state_dict()
        self.call(lambda algorithm: algorithm.note_speed(client, 0.1 * choice, 0.2 * client))
        assert self.algorithm.measures or self.same_state(self.algorithm.state_dict(), before)

    def check(self) -> None:
        self.models.append((self.algorithm.model, self.algorithm.model.clone()))
        assert torch.equal(self.algorithm.result, self.twin.result)
        assert list(self.algorithm.urgent()) == list(self.twin.urgent())
        assert set(self.algorithm.urgent()) <= self.at_work()
        for algorithm in (self.algorithm, self.twin):
            assert algorithm.slots() == self.slots() >= 0
        for client in range(self.case.clients):
            assert may_return(self.algorithm, client) or client in self.had_turn
            versions = range(self.algorithm.version + 1)
            wanted = [version for version in versions if self.algorithm.wants(client, version)]
            assert wanted == [version for version in versions if self.wants(client, version)]
        assert self.counted <= self.assigned
        assert not self.groups or not self.had_turn & self.open.keys()
        assert self.same_state(self.algorithm.state_dict(), self.twin.state_dict())


def test_random_scripts_keep_the_contract(case, plan, same_state):
    @settings(max_examples=cases(30))
    @given(SCRIPTS)
    def run(script):
        world = World(case, plan, same_state)
        for kind, client, choice in script:
            getattr(world, kind)(client % case.clients, choice)
            world.check()
        assert all(torch.equal(model, copy) for model, copy in world.models)
        assert all(same_state(state, copy) for state, copy in world.saved)

    run()


@pytest.mark.parametrize("case", cases_of("ca2fl"), ids=lambda case: case.name)
def test_an_update_is_not_sent_again_in_a_later_visit_to_the_same_version(case, plan, same_state):
    world = World(case, plan, same_state)
    for kind in ("assign", "arrive", "assign", "duplicate", "arrive"):
        getattr(world, kind)(0, 0)
        world.check()
    assert (world.counted, world.assigned) == (2, 2)


def play(case, algorithm, script, plan, wrap, look):
    """Let clients be assigned, arrive and be dropped, and time pass; ``look`` sees the algorithm after every step.

    ``wrap`` makes of an update's vector what is handed over.
    """
    at_work, last_counted = {}, {}
    for kind, number, choice in script:
        client = number % case.clients
        if kind == "assign" and algorithm.slots() > 0:
            try:
                algorithm.assign(client, plan)
            except ValueError:
                continue
            at_work[client] = algorithm.version
        elif kind == "arrive" and client in at_work:
            update = case.update(client, at_work.pop(client), choice, last_counted.get(client))
            if algorithm.wants(client, update.version):
                last_counted[client] = update.version
            algorithm.receive(update._replace(vector=wrap(update.vector, choice)))
        elif kind == "drop" and client in at_work:
            algorithm.drop(client, at_work[client])
        elif kind == "tick":
            algorithm.tick()
        elif kind == "speed":
            algorithm.note_speed(client, 0.1 * choice, 0.2 * number)
        look(algorithm)


def test_promises_and_reading_do_not_change_a_bit(case, plan, deferred, same_state):
    @settings(max_examples=cases(30))
    @given(SCRIPTS)
    def run(script):
        watched, promised = case.started(), case.started()
        promises = []

        def promise(vector, choice):
            promises.append(deferred(vector))
            return promises[-1]

        play(case, watched, script, plan, lambda vector, choice: vector, lambda algorithm: algorithm.state_dict())
        play(case, promised, script, plan, promise, lambda algorithm: (algorithm.version, algorithm.slots()))
        if promised.buffer.linear:
            assert sum(promise.resolved for promise in promises) == 0
        expected = watched.state_dict()
        assert torch.equal(promised.model, watched.model)
        assert torch.equal(promised.result, watched.result)
        assert same_state(promised.state_dict(), expected)
        assert same_state(promised.state_dict(), expected)
        assert all(promise.resolved <= 1 for promise in promises)

    run()
