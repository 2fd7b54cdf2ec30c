"""SCAFFOLD and FedDyn with clients that train: simulator and service come to the same model and the same c_i.

All that a simulation's clients do is done again by real ones, in the same order. Their processes and the server's are
killed in between.
"""

import json
import shutil
import threading
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Backoff, Connection
from torch.nn.functional import cross_entropy

from offbeat.algorithms import SCAFFOLD, FedDyn, LocalPlan
from offbeat.client import LocalSGD, run_client
from offbeat.simulation.totals import Stop
from tests.service.conftest import running
from tests.service.simulated import INPUTS, LABELS, LAYOUT, initial_model, module, simulate

CLIENTS, ROUNDS = 4, 6
PLAN = LocalPlan(steps=3, batch_size=4, lr=(0.5, 0.3, 0.2), weight_decay=0.01)
STEP_SECONDS = [1.0, 1.37, 1.9, 2.3]
SHARDS = np.split(np.arange(60), [9, 21, 40])
QUICK = Backoff(first_seconds=0.001, largest_seconds=0.002, attempts=4)


# Three are asked and two waited for, so there are updates that do not count.
ALGORITHMS = {
    "scaffold": lambda: SCAFFOLD(cohort=2, server_lr=0.8, over_selection=1.5),
    "feddyn": lambda: FedDyn(cohort=2, alpha=0.8, over_selection=1.5),
}


def simulated(make):
    """Return the calls of a simulation, its algorithm, and what each client remembers at its end."""
    calls, algorithm = [], make()
    simulation = simulate(algorithm, PLAN, STEP_SECONDS, SHARDS, stop=Stop(versions=ROUNDS), record=calls.append)
    memories = {client: memory.resolve().tolist() for client, memory in simulation._stages.training._memories.items()}
    return calls, algorithm, memories


class KilledError(BaseException):
    """The end of a client's process."""


class Participant:
    """A client's process, which trains at once and waits before it hands in; killed in between if it should be."""

    def __init__(self, server, client, folder):
        self.trains, self.may_go_on, self.is_killed = threading.Event(), threading.Event(), False
        self.counted = None
        self._thread = threading.Thread(target=self._live, args=(server, client, folder))
        self._thread.start()

    def _live(self, server, client, folder):
        local = LocalSGD(module(), cross_entropy, (INPUTS[SHARDS[client]], LABELS[SHARDS[client]]))

        def fit(model, visit):
            fitted = local.fit(model, visit)
            self.trains.set()
            assert self.may_go_on.wait(30)
            if self.is_killed:
                raise KilledError
            return fitted

        fit.corrects_gradients = True
        try:
            token = server.enrolment_token
            self.counted = run_client(server.url, lambda _: fit, folder, enrolment_token=token, visits=1, backoff=QUICK)
        except KilledError:
            pass

    def end(self, *, killed=False):
        self.is_killed = killed
        self.may_go_on.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


class World:
    """The server and its clients; the server runs in one folder after the other."""

    def __init__(self, folder, stack, make):
        self.folder = folder
        self._make = make
        self._stack = stack
        self._at_work = {}
        self._starts = 0
        self.server = None
        self.start(folder / "server 0")
        for client in range(CLIENTS):  # so that they get their numbers
            self.folder_of(client).mkdir()
            identity = {"server": self.server.url, "client": client, "token": self.server.enrol().token}
            (self.folder_of(client) / "identity.json").write_text(json.dumps(identity))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for participant in self._at_work.values():
            participant.end(killed=True)

    def folder_of(self, client):
        return self.folder / f"client {client}"

    def start(self, folder):
        settings = {"plan": PLAN, "model": initial_model(), "layout": LAYOUT, "checkpoint_seconds": 1e6}
        self.server = self._stack.enter_context(running(folder, self._make, clients=CLIENTS, **settings))

    def begin(self, client):
        participant = self._at_work[client] = Participant(self.server, client, self.folder_of(client))
        assert participant.trains.wait(30)

    def hand_in(self, client):
        """Let a client hand in its update, again if it is killed on the way; return whether it counted."""
        participant = self._at_work.pop(client)
        participant.end()
        while participant.counted is None:
            participant = Participant(self.server, client, self.folder_of(client))
            participant.end()
        return participant.counted

    def kill_all(self):
        """Kill the server and all clients that train, and start them again."""
        for participant in self._at_work.values():
            participant.end(killed=True)
        self._starts += 1
        killed = self.folder / f"server {self._starts}"
        shutil.copytree(self.server.folder, killed)  # no end is as sudden
        self._stack.close()
        self.start(killed)
        for client in range(CLIENTS):
            path = self.folder_of(client) / "identity.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "server": self.server.url}))
        for client in list(self._at_work):
            self.begin(client)


def lose_receipts(monkeypatch):
    """Kill each client once after the server has its update, before it hears of the receipt."""
    send, heard = Connection.send, set()

    def kills(self, method, path, **what):
        response = send(self, method, path, **what)
        if method == "PUT" and (self.token, path) not in heard:
            heard.add((self.token, path))
            raise KilledError
        return response

    monkeypatch.setattr(Connection, "send", kills)


@pytest.mark.parametrize(("name", "is_disturbed"), [("scaffold", False), ("scaffold", True), ("feddyn", True)])
def test_both_worlds_come_to_the_same_model_and_the_same_variates(name, is_disturbed, monkeypatch, tmp_path):
    calls, algorithm, memories = simulated(ALGORITHMS[name])
    if is_disturbed:
        lose_receipts(monkeypatch)
    outcomes = []
    with ExitStack() as stack, World(tmp_path, stack, ALGORITHMS[name]) as world:
        for call in calls:
            if call.name == "assign":
                for client in call.arguments["clients"]:
                    world.begin(client)
            elif call.name in ("receive", "offer"):  # a real client does not ask about so small an update
                outcomes.append(world.hand_in(call.arguments["client"]))
                if is_disturbed and len(outcomes) % 3 == 1:
                    world.kill_all()
        after = world.server.service.engine.coordinator.algorithm
        assert after.version == algorithm.version == ROUNDS
        assert torch.equal(after.model, algorithm.model)
        assert torch.equal(after.down(), algorithm.down())
        world.kill_all()
        assert torch.equal(world.server.service.engine.coordinator.algorithm.down(), algorithm.down())
    assert {0, 1} == set(outcomes)
    assert sum(outcomes) == 2 * ROUNDS
    outboxes = {client: Outbox(tmp_path / f"client {client}") for client in range(CLIENTS)}
    kept = {client: outbox.memory(outbox.kept().since, 15) for client, outbox in outboxes.items()}
    assert {client: memory.tolist() for client, memory in kept.items() if memory is not None} == memories
