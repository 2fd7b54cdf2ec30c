"""Masked clients that are killed at every third of their steps in turn."""

import json
import math
from itertools import count

import numpy as np
import pytest
from offbeat_client.client_folder.private_record import read_models
from offbeat_client.client_run import run_client
from offbeat_core.model_file import model_digest
from safetensors.numpy import load_file

from tests.offbeat_client import test_private_differences as differences
from tests.offbeat_client.conftest import Fault, KilledError, model_of
from tests.offbeat_client.helper_facts import TERMS, Helper, private_folder
from tests.offbeat_client.test_private_run import Client, check_received, delta_of

LEAST_STEPS = 60  # a life of three visits has more
VISITS = {0: None, 1: 10, 2: 10}  # and the updates that they count on; the third is to the first


@pytest.fixture
def lives(server, model, kill_at, quick, tmp_path):
    """Return a generator of clients, their numbers of kills and their folders after a life of three visits.

    Each life begins with a new client, which is killed three steps later than the one before, from ``first`` on; the
    last life has no kill. During the upload of visit 1 the helper's epoch ends.
    """

    def live(terms, make_client, first, **values):
        helper = Helper(terms=terms)
        helper.version = 1000
        server.share = helper.facts

        def is_stale(announced):
            bound = helper.envelope(announced).binding
            if bound.visit == 1 and bound.epoch == 0:
                helper.epoch, helper.head_number = 1, 101
            return bound.epoch < helper.epoch

        server.is_stale = is_stale
        for step in count(first, 3):
            helper.epoch = helper.head_number = 0
            for memory in (server.put, server.bodies, server.receipts, server.heard, server.received, server.visits):
                memory.clear()
            server.open = None
            for visit, since in VISITS.items():
                server.serve(10 + visit, model_of(10 + visit, model))
                values |= {"privacy": {"terms": terms.digest.hex()}, "payload": terms.payload}
                server.offer(visit, 10 + visit, since=since, **values)
            server.faults["PUT", "/v1/uploads/2"] = [Fault(body_bytes=9)]  # it comes in two pieces
            (tmp_path / str(step)).mkdir()
            folder, client, kills = private_folder(tmp_path / str(step) / "me", terms), make_client(), 0
            options = {"enrolment_token": "obe_1", "terms": folder.with_name("terms.json"), "backoff": quick}
            kill_at(step)
            try:
                run_client(server.url, lambda _, client=client: client, folder, **options)
            except KilledError:
                kills = 1
            kill_at(math.inf)
            if kills:
                run_client(server.url, lambda _, client=client: client, folder, **options)
            assert sorted(server.receipts) == [0, 1, 2]
            yield helper, client, kills, folder
            if not kills:
                assert step > LEAST_STEPS
                return

    return live


def test_only_one_share_a_visit_and_epoch_leaves_the_client(server, lives, model):
    deltas = [delta_of(visit) for visit in range(3)]
    for helper, client, kills, folder in lives(TERMS, Client, 0):
        check_received(server, deltas, model)
        assert len(client.trained) <= 3 + kills
        shares = {}  # of each visit, in the order in which they came
        for visit, announced, body in server.put:
            bodies = shares.setdefault(visit, {}).setdefault(json.dumps(announced), set())
            bodies.add(body)
            assert visit == 2 or len(bodies) == 1
            assert announced != server.announced[visit] or body in server.bodies[visit]
        epochs = {
            visit: [helper.envelope(json.loads(text)).binding.epoch for text in by_announcement]
            for visit, by_announcement in shares.items()
        }
        assert epochs == {0: [0], 1: [0, 1], 2: [1]}, folder
        for visit, delta in enumerate(deltas):
            quantised = helper.open(server.announced[visit], server.bodies[visit])[1]
            assert np.abs(np.array(quantised) * TERMS.step - delta).max() < 1.001 * TERMS.step
        (path,) = folder.glob("private-*.json")
        record = json.loads(path.read_text())
        assert (record["visit"], record["start_version"], record["head_number"]) == (2, 12, 101), folder
        (path,) = folder.glob("models-*.txt")
        digests = {version: model_digest(model_of(version, model)).hex() for version in (10, 11, 12)}
        assert read_models(path).digests == digests, folder


def test_a_client_remembers_what_the_server_has_counted(server, lives):
    for helper, _, _, folder in lives(differences.DIFFERENCES, lambda: differences.fit, 1):
        numbers = [differences.sent(server, helper, visit) for visit in range(3)]
        differences.check_is_update(numbers[0], 0)
        differences.check_is_update(numbers[0] + numbers[1], 1)
        differences.check_is_update(numbers[0] + numbers[2], 2)
        kept = json.loads((folder / "kept.json").read_text())
        memories = [load_file(folder / kept[name])["memory"].tolist() for name in ("memory", "earlier_memory")]
        assert memories == [(numbers[0] + numbers[2]).tolist(), numbers[0].tolist()], folder
        assert (kept["since"], kept["earlier_since"]) == (12, 10)
        assert len(list(folder.glob("memory-*"))) == 2
