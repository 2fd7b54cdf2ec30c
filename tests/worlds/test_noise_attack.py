"""Attacks on the noise of released models; ``OFFBEAT_ATTACKS`` says on how many releases, ``make audit`` on 10,000."""

import math
import os

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, norm

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components import LocalPlan, Update
from offbeat.algorithms.components.buffers.secret import secret
from offbeat.algorithms.components.weights import constant
from offbeat.config.privacy_section import PrivacySection
from offbeat.config.server_file import load
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine.privacy_status import PrivacySettings
from offbeat.worlds.serve import build_coordinator
from offbeat.worlds.served_privacy import privacy_settings
from offbeat.worlds.simulated_privacy import protect
from tests.service.conftest import running
from tests.service.http_client import until
from tests.service.masked.conftest import MaskedServer, enrolled_helper
from tests.worlds.noise_attack import Release, attack, steps

ATTACKS = int(os.environ.get("OFFBEAT_ATTACKS", "100"))
LARGEST = 2**19 - 1
STEP = 2.0**-19
CLIP_NORM = LARGEST * STEP
SIGMA = 2.0
LENGTH = 650  # softmax on digits
PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)
SERVER = f"""
local = {{ steps = 1, batch_size = 8, lr = 0.1 }}
data.name = "digits"
model.name = "softmax"
[service]
folder = "run"
clients = 40
port = 0
[privacy]
clip_norm = {CLIP_NORM!r}
noise_multiplier = {SIGMA}
max_participations = 1000
delta = 1e-3
[algorithm]
algorithm = "fedbuff"
buffer_size = 2
concurrency = 10
staleness = {{ name = "constant" }}
"""


def updates(random, length):
    """Return two updates on the grid whose norms are below the clip norm, in steps."""
    return random.integers(-LARGEST // 40, LARGEST // 40, (2, length))


def release(before, after, pair):
    """Return what the attacker compares; the first client's update is in question."""
    vectors = (pair * STEP).astype(np.float32)
    numbers = (pair[0] + pair[1], pair[1])
    return Release(before.numpy(), after.numpy(), (vectors[0] + vectors[1], vectors[1]), numbers, STEP)


def nothing_decisive(releases):
    found = attack(releases)
    assert found["grid none"] == len(releases), found
    # Whoever asks as if there were floats is wrong as often as right.
    right, wrong = found["floats right"], found["floats wrong"]
    assert abs(right - wrong) <= 4 * math.sqrt(right + wrong), found


def algorithm_releases(length, count):
    random = np.random.default_rng(0)
    for seed in range(count):
        algorithm = FedBuff(buffer_size=2, concurrency=4, staleness=constant())
        section = PrivacySection(clip_norm=CLIP_NORM, noise_multiplier=SIGMA, max_participations=9)
        protect(section, algorithm, clients=9, length=length, seed=seed)
        algorithm.start(torch.zeros(length), 9)
        pair = updates(random, length)
        for client in (0, 1):
            algorithm.assign(client, PLAN)
            vector = torch.from_numpy((pair[client] * STEP).astype(np.float32))
            algorithm.receive(Update(client, 0, vector, 1, 1, 1.0, plan=PLAN))
        yield release(torch.zeros(length), algorithm.model, pair)


@pytest.mark.parametrize("length", [3, 100])
def test_a_released_model_tells_nothing_for_certain(length):
    nothing_decisive(list(algorithm_releases(length, ATTACKS)))


def test_noise_is_the_rounded_gaussian():
    """Chi-square of (released − true) in steps: in the large, and modulo small numbers, where floats would show."""
    found = steps(list(algorithm_releases(300, max(ATTACKS, 300))))
    assert np.array_equal(found, np.rint(found))
    deviation = SIGMA * (LARGEST + math.sqrt(300))
    edges = np.rint(deviation * norm.ppf(np.arange(1, 100) / 100)) + 0.5
    observed = np.bincount(np.searchsorted(edges, found), minlength=100)
    expected = len(found) * np.diff(norm.cdf(np.concatenate(([-np.inf], edges, [np.inf])) / deviation))
    assert chisquare(observed, expected).pvalue > 1e-4
    for modulus in (2, 3, 64, 1000):
        assert chisquare(np.bincount(found.astype(np.int64) % modulus, minlength=modulus)).pvalue > 1e-4


def test_small_noise_is_the_rounded_gaussian():
    """With a coarse grid each whole number is seen often: σ · (1 + √d) is 4 steps."""
    length, random = 9, np.random.default_rng(1)
    found = []
    for seed in range(2 * ATTACKS):
        algorithm = FedBuff(buffer_size=2, concurrency=4, staleness=constant())
        section = PrivacySection(clip_norm=1.0, noise_multiplier=1.0, max_participations=9, bits=2)
        protect(section, algorithm, clients=9, length=length, seed=seed)
        algorithm.start(torch.zeros(length), 9)
        pair = np.zeros((2, length), np.int64)
        pair[:, seed % length] = random.integers(-1, 2, 2)
        for client in (0, 1):
            algorithm.assign(client, PLAN)
            algorithm.receive(Update(client, 0, torch.tensor(pair[client]).float(), 1, 1, 1.0, plan=PLAN))
        found.extend(np.rint(-2 * algorithm.model.numpy()).astype(np.int64) - pair.sum(axis=0))
    edges = np.arange(-5.5, 6)
    observed = np.bincount(np.searchsorted(edges, np.array(found)), minlength=len(edges) + 1)
    expected = len(found) * np.diff(norm.cdf(np.concatenate(([-np.inf], edges, [np.inf])) / 4))
    assert chisquare(observed, expected).pvalue > 1e-4


def test_a_servers_models_tell_nothing_for_certain(tmp_path):
    (tmp_path / "server.toml").write_text(SERVER, encoding="utf-8")
    file = load(tmp_path / "server.toml", [f"service.folder={tmp_path / 'run'}"])
    coordinator, _ = build_coordinator(file)
    random, releases = np.random.default_rng(2), []
    with (
        privacy_settings(file, LENGTH) as settings,
        running(
            tmp_path / "run",
            lambda: coordinator.algorithm,
            clients=40,
            model=torch.zeros(LENGTH),
            layout=[("w", (LENGTH,))],
            participation=coordinator.participation,
            privacy=settings,
            checkpoint_seconds=1e6,
            max_update_norm=file.settings().service.max_update_norm,
        ) as server,
    ):
        peers = [server.enrol() for _ in range(4)]
        algorithm = server.service.engine.coordinator.algorithm
        before = torch.zeros(LENGTH)
        for version in range(max(20, ATTACKS // 10)):
            pair = updates(random, LENGTH)
            for peer, numbers in zip(peers[version % 2 :: 2], pair, strict=True):
                peer.send(peer.check_in(), torch.from_numpy((numbers * STEP).astype(np.float32)))
            until(lambda version=version: algorithm.version == version + 1)
            after = algorithm.model.clone()
            releases.append(release(before, after, pair))
            before = after
    nothing_decisive(releases)


def test_models_whose_noise_a_helper_adds_tell_nothing_for_certain(tmp_path):
    random, releases = np.random.default_rng(3), []
    terms = {"length": 100, "buffer": 3, "min_clients": 2, "clip_norm": CLIP_NORM, "noise_multiplier": SIGMA}
    terms |= {"max_participations": 1000, "min_separation": 1, "bits": 20, "mechanism": "independent"}

    def masked():
        algorithm = FedBuff(buffer_size=2, concurrency=4, staleness=constant())
        algorithm.wrap(secret(step=STEP, bound=2**30, least=2))
        return algorithm

    with (
        enrolled_helper(tmp_path / "helper", **terms) as helper,
        running(
            tmp_path / "run",
            masked,
            clients=8,
            model=torch.zeros(100),
            layout=[("w", (100,))],
            participation=Participation(8, limit=1000, separation=1),
            privacy=PrivacySettings(SIGMA, 1e-3, helper.terms, helper),
        ) as served,
    ):
        server = MaskedServer(served, helper)
        until(lambda: server.status()["helper"] == "ok")
        clients, before = [server.client(number) for number in range(4)], torch.zeros(100)
        for version in range(max(20, ATTACKS // 100)):
            pair = updates(random, 100)
            for client, numbers in zip(clients[version % 2 :: 2], pair, strict=True):
                client.give(torch.from_numpy((numbers * STEP).astype(np.float32)))
            until(lambda version=version: server.algorithm.version == version + 1)
            after = server.algorithm.model.clone()
            releases.append(release(before, after, pair))
            before = after
    nothing_decisive(releases)
