"""Random scripts of batches and restarts: whatever the server tries, the books add up."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.helper.opening_rules import Rules

from tests.offbeat_private.helper.conftest import CLIENT_KEYS
from tests.offbeat_private.helper.test_opening_rules import ROSTERED, World

LIMITS = {"max_participations": 3, "min_separation": 2, "min_clients": 2, "buffer": 3}


class Server(World):
    """A server that tries anything, and its own books on what was opened."""

    def __init__(self):
        super().__init__(**LIMITS)
        self.batches = []  # the records of each
        self.visits = []  # (client, visit, start version) of each batch
        self.sealed = {}  # (client, visit, start version): record

    def sealed_record(self, client, visit, start):
        key = client, visit, start
        if key not in self.sealed:
            self.sealed[key] = self.record(client, visit, start)
        return self.sealed[key]

    def is_allowed(self, visits):
        clients = [client for client, _, _ in visits]
        number = len(self.visits) + 1
        for client, visit, start in visits:
            mine = [
                (batch, past[1:]) for batch, pasts in enumerate(self.visits, 1) for past in pasts if past[0] == client
            ]
            if client >= ROSTERED or len(mine) >= 3 or any(number - batch < 2 for batch, _ in mine):
                return False
            if any(visit <= past_visit or start <= past_start for _, (past_visit, past_start) in mine):
                return False
        return 2 <= len(set(clients)) == len(clients) <= 3

    def try_batch(self, number, visits):
        records = [self.sealed_record(*visit) for visit in visits]
        before = copy.deepcopy(self.rules.opened)
        if 1 <= number <= len(self.batches):
            allowed = sorted(records) == sorted(self.batches[number - 1])
        else:
            allowed = number == len(self.batches) + 1 and self.is_allowed(visits)
        if not allowed:
            with pytest.raises(HelperRefusal):
                self.open(number, records)
            assert self.rules.opened == before
        elif self.open(number, records) is None:
            assert self.rules.opened == before
        else:
            self.batches.append(records)
            self.visits.append(visits)

    def check(self):
        opened = self.rules.opened
        assert self.rules.head.number == len(opened.heads) == len(opened.batches) == len(self.batches)
        for client, key in enumerate(CLIENT_KEYS):
            mine = [past for batch in self.visits for past in batch if past[0] == client]
            history = opened.histories.get(key)
            assert (history.participations if history else 0) == len(mine) <= 3
            assert len({visit for _, visit, _ in mine}) == len({start for _, _, start in mine}) == len(mine)


VISITS = st.lists(st.tuples(st.integers(0, ROSTERED), st.integers(0, 6), st.integers(0, 6)), max_size=4)
STEPS = st.lists(st.one_of(VISITS, st.integers(0, 8), st.just("restart")), max_size=30)


@settings(max_examples=100)
@given(script=STEPS)
def test_a_batch_is_opened_exactly_if_the_rules_allow_it(script):
    server = Server()
    for step in script:
        if step == "restart":
            server.rules = Rules(server.terms, CLIENT_KEYS[:ROSTERED], copy.deepcopy(server.rules.opened))
        elif isinstance(step, int):  # a number out of order, or an old batch in another order
            old = server.visits[step - 1] if 1 <= step <= len(server.visits) else [(0, 6, 6), (1, 6, 6)]
            server.try_batch(step, old[::-1])
        else:
            server.try_batch(len(server.batches) + 1, step)
        server.check()


@settings(max_examples=20)
@given(data=st.data())
def test_a_server_that_follows_the_rules_is_never_refused_until_participations_are_spent(data):
    server = Server()
    for _ in range(12):
        number = len(server.batches) + 1
        histories = {client: server.rules.opened.histories.get(CLIENT_KEYS[client]) for client in range(ROSTERED)}
        free = [
            client
            for client, past in histories.items()
            if past is None or (past.participations < 3 and number - past.batch >= 2)
        ]
        if len(free) < 2:
            break
        chosen = data.draw(st.lists(st.sampled_from(free), min_size=2, max_size=min(3, len(free)), unique=True))
        server.try_batch(number, [(client, number, number) for client in chosen])
        assert len(server.batches) == number
        server.check()
    assert server.batches
