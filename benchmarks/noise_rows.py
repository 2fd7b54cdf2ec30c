"""The time of differential privacy's noise.

``python benchmarks/noise_rows.py`` prints milliseconds of a core per 10 million Gaussians, as the median, least and
largest of 9 repetitions: AES-256-CTR and Box-Muller alone, a sum's independent noise with its rounding, a row of its
banded noise.
"""

import statistics
import time
from collections.abc import Callable

from offbeat_private.masks.keystream import keystream
from offbeat_private.noise.gaussian_words import WORDS, gaussians
from offbeat_private.noise.noise_rows import NoiseSource

LENGTH = 10_000_000
PAIRS = 1 << 14
BANDS = 10
SECRET = bytes(32)


def show(name: str, work: Callable[[int], object], gaussians: int) -> None:
    """Print the time of ``work``, called with 1, 2, …, which makes so many Gaussians."""
    work(1)
    times: list[float] = []
    for number in range(BANDS, BANDS + 9):
        begin = time.process_time()
        work(number)
        times.append(1000 * (time.process_time() - begin) * LENGTH / gaussians)
    print(f"{name:20} {statistics.median(times):6.0f} ms ({min(times):.0f} to {max(times):.0f})")


def main() -> None:
    """Print all rows."""
    independent = NoiseSource(SECRET, LENGTH, noise_multiplier=5, largest=2**19 - 1)
    banded = NoiseSource(SECRET, LENGTH, noise_multiplier=5, largest=2**19 - 1, bands=BANDS)
    digests = [bytes([number]) * 32 for number in range(2 * BANDS)]

    def many(number: int) -> None:
        for piece in range(100):
            gaussians(keystream(SECRET, number << 32 | piece, WORDS * PAIRS))

    show("Gaussians", many, 200 * PAIRS)
    show("independent noise", lambda number: independent.noise(number, digests), LENGTH)
    show("a row of banded", lambda number: banded.noise(number, digests), BANDS * LENGTH)


if __name__ == "__main__":
    main()
