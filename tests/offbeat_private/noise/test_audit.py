"""Audits of noisy sums; ``OFFBEAT_AUDITS`` says how many of each mechanism, ``make audit`` does 20."""

import hashlib
import math
import os
from collections.abc import Callable
from itertools import count, cycle

import numpy as np
import pytest
import torch
from offbeat_private.helper.helper import sum_of_masks
from offbeat_private.masks.fixed_point import whole_numbers
from offbeat_private.masks.share import mask
from offbeat_private.noise.noise_rows import NoiseSource

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components import LocalPlan, Update
from offbeat.algorithms.components.buffers.noisy_sum import noisy
from offbeat.algorithms.components.weights import constant
from offbeat.whole_numbers import Grid, WholeNumbers
from tests.offbeat_private.noise.audit import Vectors, audit

AUDITS = int(os.environ.get("OFFBEAT_AUDITS", "1"))
LENGTH = 4096
CLIP_NORM = 2.0
SIGMA = 5.0
GRID = Grid(CLIP_NORM, 2**19 - 1)
PLAN = LocalPlan(steps=1, batch_size=1, lr=0.1)
Sums = Callable[[int, int], float]
EXPECTED = math.sqrt(10) / 5
BANDS = pytest.mark.parametrize("bands", [1, 20], ids=["independent", "banded"])


def noise_source(bands: int, seed: int, sigma: float = SIGMA) -> NoiseSource:
    return NoiseSource(
        hashlib.sha256(b"secret %d" % seed).digest(), LENGTH, noise_multiplier=sigma, largest=GRID.largest,
        participations=10, separation=20, bands=bands,
    )  # fmt: skip


def served_sums(
    bands: int, seed: int = 0, *, noise_share: float = 1.0, clip_norm: float = CLIP_NORM, clients: int = 1000
) -> float:
    """Return the audit's result for the sums of a server without a helper: FedBuff's models, one after the other.

    Args:
        bands: Bands of the noise.
        seed: Of canaries, rounding and noise.
        noise_share: The part of the noise that is made.
        clip_norm: The norm to which the server clips; noise is made for ``CLIP_NORM``.
        clients: A multiple of 20; the result has a standard error of 2/√clients.
    """
    buffer_size = clients // 20
    algorithm = FedBuff(buffer_size=buffer_size, concurrency=clients, staleness=constant())
    grid = Grid(clip_norm, round(GRID.largest * clip_norm / CLIP_NORM))
    source = noise_source(bands, seed, SIGMA * noise_share)
    keys = (hashlib.sha256(b"rounding %d %d" % (seed, number)).digest() for number in count())

    def whole(update: Update, divisor: float, scale: float) -> WholeNumbers:
        return WholeNumbers(update.vector, grid, divisor, scale, next(keys))

    algorithm.wrap(noisy(step=grid.step, whole=whole, noise=source, least=1))
    algorithm.start(torch.zeros(LENGTH), clients)
    turns, models = cycle(range(clients)), [np.zeros(LENGTH)]

    def release(number: int, updates: Vectors) -> Vectors:
        for update in updates.astype(np.float32):
            client = next(turns)
            algorithm.assign(client, PLAN)
            algorithm.receive(Update(client, number - 1, torch.from_numpy(update), 1, 1, 1.0, plan=PLAN))
        models.append(algorithm.model.double().numpy())
        return buffer_size * (models[-2] - models[-1])

    return audit(release, length=LENGTH, canary_norm=10 * CLIP_NORM, bands=bands, seed=seed, clients=clients)


def masked_sums(bands: int, seed: int) -> float:
    """Return the audit's result for masked sums that a helper opens, whose noise is bound to the batches."""
    source = noise_source(bands, seed)
    batches: list[bytes] = []

    def release(number: int, updates: Vectors) -> Vectors:
        seeds = [os.urandom(32) for _ in updates]
        masked = np.zeros(LENGTH, np.uint32)
        for update, key in zip(updates.astype(np.float32), seeds, strict=True):
            numbers = whole_numbers(update, clip_norm=CLIP_NORM, largest=GRID.largest, key=os.urandom(32))
            masked += mask(numbers, key)
        batches.append(hashlib.sha256(b"".join(seeds)).digest())
        masked -= sum_of_masks(seeds, LENGTH, source.noise(number, batches))
        return masked.view(np.int32) * GRID.step

    return audit(release, length=LENGTH, canary_norm=10 * CLIP_NORM, bands=bands, seed=seed)


@BANDS
@pytest.mark.parametrize("sums", [served_sums, masked_sums], ids=["server", "helper"])
def test_distance_is_the_accountants(sums: Sums, bands: int, capsys: pytest.CaptureFixture[str]) -> None:
    distances = [sums(bands, seed) for seed in range(AUDITS)]
    with capsys.disabled():
        found = f"{np.mean(distances):.3f} ({min(distances):.3f} … {max(distances):.3f})"
        print(f"\n  {sums.__name__}, {bands} bands: {found}")
    assert np.mean(distances) == pytest.approx(EXPECTED, abs=0.2 / math.sqrt(AUDITS))


def test_noise_of_another_size_and_updates_without_a_clip_are_caught() -> None:
    """By a standard error of 0.11, the smallest of the differences is three of them."""
    assert served_sums(1, noise_share=0.5, clients=340) > EXPECTED + 0.2
    assert served_sums(1, noise_share=2.0, clients=340) < EXPECTED - 0.2
    assert served_sums(1, clip_norm=10 * CLIP_NORM, clients=340) > EXPECTED + 0.2
