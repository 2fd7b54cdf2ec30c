"""The cost of private sums for 10 million parameters.

Run it with ``make bench-privacy``. Times are CPU milliseconds, all threads together: the median of 7 repetitions, and
their range.
"""

import hashlib
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_private.agreed_plan import AgreedPlan
from offbeat_private.helper.helper import open_seeds, sum_of_masks
from offbeat_private.masks.envelope import RECORD_BYTES, Binding, parse, seal
from offbeat_private.masks.fixed_point import norm, quantise
from offbeat_private.masks.helper_facts import EpochKey, Head
from offbeat_private.masks.share import make_share, mask, vector_digest
from offbeat_private.noise.noise_rows import NoiseSource
from offbeat_private.signed_terms import Terms

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components import LocalPlan, Update
from offbeat.algorithms.components.buffers.running_sum import values
from offbeat.config.privacy_section import PrivacySection
from offbeat.whole_numbers import Grid, WholeNumbers
from offbeat.worlds.simulated_privacy import protect

LENGTH = 10_000_000
REPETITIONS = 7

Row = tuple[str, Callable[[], object]]
"""A line of the table: its name, and the work whose time it shows."""


def client_rows() -> list[Row]:
    """Return the parts of a client's work, and the whole."""
    delta = np.random.default_rng(0).normal(0, 0.01, LENGTH).astype(np.float32)
    signing_key, hpke_key = Ed25519PrivateKey.generate(), X25519PrivateKey.generate().public_key().public_bytes_raw()
    client = signing_key.public_key().public_bytes_raw()
    terms = Terms(
        run=os.urandom(16), helper_key=client, length=LENGTH, buffer=10, min_clients=10, clip_norm=1.0,
        noise_multiplier=3.77, mechanism="independent", max_participations=10, min_separation=50, bands=1, bits=20,
        local=AgreedPlan(steps=20, batch_size=32, lr=0.1),
    )  # fmt: skip
    quantised = quantise(delta, terms.step, os.urandom(32), terms.largest)
    masked = mask(quantised.copy(), os.urandom(32))
    binding = Binding(terms.digest, terms.run, client, 0, 0, 0, bytes(32), vector_digest(masked), 0, bytes(32), 0)

    def share() -> object:
        return make_share(
            delta, divisor=1.0, scale=1.0, terms=terms, visit=0, start_version=0, version=0, model=bytes(32),
            head=Head(0, bytes(32)), head_signature=bytes(64), epoch_key=EpochKey(0, hpke_key), signing_key=signing_key,
        )  # fmt: skip

    return [
        ("client: norm for the clip", lambda: norm(delta)),
        ("client: quantise", lambda: quantise(delta, terms.step, os.urandom(32), terms.largest, 0.03)),
        ("client: mask", lambda: mask(quantised, os.urandom(32))),
        ("client: digest", lambda: vector_digest(masked)),
        ("client: seal and sign", lambda: seal(os.urandom(32), hpke_key, binding, bytes(64), signing_key)),
        ("client: the whole share", share),
        ("for comparison: SHA-256 of a plain update", lambda: hashlib.sha256(delta.data).digest()),
    ]


def helper_rows() -> list[Row]:
    """Return the parts of a helper's work on a batch of ten."""
    seeds = [os.urandom(32) for _ in range(10)]
    hpke_key, signing_key = X25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    client = signing_key.public_key().public_bytes_raw()
    binding = Binding(bytes(32), bytes(16), client, 0, 0, 0, bytes(32), bytes(32), 0, bytes(32), 0)
    helper_key, head = Ed25519PrivateKey.generate(), Head(0, bytes(32))
    helper, head_signature = helper_key.public_key().public_bytes_raw(), helper_key.sign(head.signed_message(bytes(32)))
    record = seal(seeds[0], hpke_key.public_key().public_bytes_raw(), binding, head_signature, signing_key)
    noise = np.random.default_rng(0).integers(-(2**20), 2**20, LENGTH)

    def check_and_open() -> None:
        envelope = parse(record)
        envelope.check_signature()
        envelope.check_head(helper)
        open_seeds([envelope], lambda _: hpke_key)

    return [
        ("helper: check and open an envelope", check_and_open),
        ("helper: the sum of 1 mask", lambda: sum_of_masks(seeds[:1], LENGTH, None)),
        ("helper: the sum of 10 masks", lambda: sum_of_masks(seeds, LENGTH, None)),
        ("helper: the same with whole noise", lambda: sum_of_masks(seeds, LENGTH, noise)),
    ]


def server_rows() -> list[Row]:
    """Return the work of a server without a helper, on updates and sums."""
    delta = torch.from_numpy(np.random.default_rng(0).normal(0, 1e-3, LENGTH).astype(np.float32))
    grid = Grid(clip_norm=0.1, largest=2**19 - 1)
    numbers = WholeNumbers(delta, grid, 1.0, 1.0, bytes(32))
    total = torch.zeros(LENGTH, dtype=torch.int64)
    total += numbers.resolve()
    noise = NoiseSource(bytes(32), LENGTH, noise_multiplier=3.77, largest=grid.largest)
    algorithm, plain = FedBuff(buffer_size=4, concurrency=8), started(FedBuff(buffer_size=4, concurrency=8))
    section = PrivacySection(clip_norm=grid.clip_norm, noise_multiplier=3.77, max_participations=1000)
    protect(section, algorithm, clients=20, length=LENGTH, seed=0)
    started(algorithm)
    return [
        ("server: an update as whole numbers", numbers.resolve),
        ("server: digest of a sum", lambda: hashlib.sha256(total.numpy().data).digest()),
        ("server: noise of a sum", lambda: noise.noise(1, [bytes(32)])),
        ("server: a sum as floats", lambda: values(total, grid.step)),
        ("server: a version of four updates", lambda: version_of_four(algorithm, delta)),
        ("for comparison: a plain version of four", lambda: version_of_four(plain, delta)),
    ]


def started(algorithm: FedBuff) -> FedBuff:
    """Return the algorithm in a run of 20 clients."""
    algorithm.start(torch.zeros(LENGTH), 20)
    return algorithm


def version_of_four(algorithm: FedBuff, delta: torch.Tensor) -> torch.Tensor:
    """Return the model after four more updates."""
    plan = LocalPlan(steps=1, batch_size=1, lr=0.1)
    for client in range(4):
        algorithm.assign(client, plan)
        algorithm.receive(Update(client, algorithm.version, delta, 1, 1, 1.0, plan=plan))
    return algorithm.model


def milliseconds(work: Callable[[], object]) -> list[float]:
    """Return the CPU times of some calls, in order of size."""
    work()
    times: list[float] = []
    for _ in range(REPETITIONS):
        begin = time.process_time()
        work()
        times.append(1000 * (time.process_time() - begin))
    return sorted(times)


def main() -> None:
    """Print times and bytes."""
    print(f"{LENGTH:,} parameters{'':24} CPU ms       range")
    for name, work in client_rows() + helper_rows() + server_rows():
        times = milliseconds(work)
        print(f"{name:42} {statistics.median(times):7.1f}  {times[0]:.1f} … {times[-1]:.1f}")
    print("\nparameters  bytes up of a share  relative to a plain float32 update")
    for length in (7_850, 1_000_000, LENGTH):
        plain, private = 4 * length, 4 * length + RECORD_BYTES
        print(f"{length:10,} {private:20,} {private / plain:35.5f}")


if __name__ == "__main__":
    main()
