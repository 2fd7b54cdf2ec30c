"""The time of ``top_k`` on 10 million entries, relative to ``torch.topk`` alone.

Run it with ``python benchmarks/compression.py``; it prints the median of 5 repetitions for each share and number of
threads, then milliseconds for all compressors.
"""

import statistics
import time
from collections.abc import Callable

import torch

from offbeat.compression import Compressor, Encoded, decode, qsgd, random_k, sign, top_k, wire_bytes

LENGTH = 10_000_000
REPETITIONS = 5


def milliseconds(work: Callable[[], object]) -> float:
    """Return the median time of one call."""
    times: list[float] = []
    for _ in range(REPETITIONS):
        begin = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def compare_with_topk(vector: torch.Tensor, share: float) -> None:
    """Print a row of the first table."""
    compressor = top_k(share)
    count = compressor.kept(LENGTH)
    reference = milliseconds(lambda: torch.topk(vector.abs(), count, sorted=False))
    encode = milliseconds(lambda: compressor.encode(vector, seed=0))
    threads = torch.get_num_threads()
    print(f"{threads:7} {share:9} {reference:11.1f} {encode:14.1f} {encode / reference:7.2f}")


def time_all(vector: torch.Tensor, compressor: Compressor) -> None:
    """Print a row of the second table."""
    encoded = compressor.encode(vector, seed=0)
    data = encoded.to_bytes()
    encode = milliseconds(lambda: compressor.encode(vector, seed=0))
    read = milliseconds(lambda: Encoded.from_bytes(data, LENGTH))
    unpack = milliseconds(lambda: decode(encoded))
    print(f"{compressor!s:33} {wire_bytes(compressor, LENGTH):10} {encode:10.1f} {read:14.1f} {unpack:10.1f}")


def main() -> None:
    """Print both tables."""
    normal = torch.randn(LENGTH, generator=torch.Generator().manual_seed(0))
    inputs = {"normal": normal, "whole numbers −3 … 3, many ties": normal.round().clamp(-3, 3)}
    for name, vector in inputs.items():
        print(f"\n{name}\nthreads     share  torch.topk   top_k.encode   ratio")
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for share in (0.001, 0.01, 0.1):
                compare_with_topk(vector, share)
    torch.set_num_threads(1)
    print(f"\n{'compressor':33} {'bytes':>10} {'encode':>10} {'from_bytes':>14} {'decode':>10}")
    for compressor in (top_k(0.01), top_k(0.1), random_k(0.01), random_k(0.1), qsgd(4), qsgd(8), sign()):
        time_all(normal, compressor)


if __name__ == "__main__":
    main()
