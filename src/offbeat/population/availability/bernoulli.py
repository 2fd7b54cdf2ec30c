"""Clients that are available in random rounds."""

import math

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.availability.protocol import LAST_SECONDS, check_period, period_of
from offbeat.uniform_numbers import uniform

# Drawn together, 64 rounds of 64 clients: one call for each draw would take most of a run's time.
_BLOCK = 64
_ALL = 2**_BLOCK - 1

# Beyond the near blocks, a client is searched for alone, in longer blocks up to a limit.
_NEAR_BLOCKS = 64
_FAR_ROUNDS = 65_536
_MAX_ROUNDS_OFFLINE = 10_000_000
_MAX_ROUNDS_AVAILABLE = 1_000_000

# About 2 kB each; enough for a million clients at about the same time.
_MAX_CACHED_BLOCKS = 32_768


class Bernoulli:
    """Clients available in each round with one probability, independently.

    Client i is available in round r if ``uniform(seed, AVAILABILITY, i, visit=r) < probability`` (the bits of r above
    the 32nd go to ``draw``). Adjacent rounds merge.

    Args:
        probability: Probability that a client is available in a round, in (0, 1]; 1 is always.
        round_seconds: Length of a round, at least a millisecond. Rounds end after 10¹¹ seconds.
        seed: The run's seed.

    Raises:
        OffbeatError: The rounds are too short.
    """

    def __init__(self, probability: float, round_seconds: float, seed: int) -> None:
        check_period("round_seconds", round_seconds)
        self._probability = probability
        self._round_seconds = float(round_seconds)
        self._seed = seed
        self._cache: dict[tuple[int, int], list[int]] = {}
        # The latest long interval of each client that had one: its first round and the round after its last.
        self._long_intervals: dict[int, tuple[int, int]] = {}

    def next_available(self, client: int, seconds: float) -> float:
        """Return ``seconds`` or the start of the client's next available round.

        Raises:
            OffbeatError: The client is offline for the next ten million rounds.
        """
        if self._probability == 1:
            return seconds
        if seconds >= LAST_SECONDS:
            return math.inf
        current = period_of(seconds, self._round_seconds)
        found = self._find_round(client, current, True, _MAX_ROUNDS_OFFLINE)
        if found is None:
            raise OffbeatError(
                f"client {client} is available in none of {_MAX_ROUNDS_OFFLINE:,} rounds: "
                f"probability = {self._probability} is too close to 0"
            )
        if found == current:
            return seconds
        begin = found * self._round_seconds
        return begin if begin < LAST_SECONDS else math.inf

    def next_offline(self, client: int, seconds: float) -> float:
        """Return the start of the first later round in which the client is offline.

        If the client is available for the next million rounds, this is the start of the round after them; the caller
        has to ask ``next_available`` anyway.
        """
        if self._probability == 1:
            return math.inf
        current = period_of(seconds, self._round_seconds)
        begin, end = self._long_intervals.get(client, (0, 0))
        if not begin <= current < end:
            found = self._find_round(client, current, False, _MAX_ROUNDS_AVAILABLE)
            end = current + _MAX_ROUNDS_AVAILABLE if found is None else found
            if end - current >= _NEAR_BLOCKS * _BLOCK:
                self._long_intervals[client] = (current, end)
        return min(end * self._round_seconds, LAST_SECONDS)

    def _find_round(self, client: int, begin: int, available: bool, limit: int) -> int | None:
        """Return the first of ``limit`` rounds that is as wanted; None if none is."""
        clients, member = divmod(client, _BLOCK)
        rounds, offset = divmod(begin, _BLOCK)
        for block in range(rounds, rounds + _NEAR_BLOCKS):
            bits = self._draw_block(clients, block)[member]
            bits = (bits if available else bits ^ _ALL) >> offset
            if bits:
                return block * _BLOCK + offset + (bits & -bits).bit_length() - 1
            offset = 0
        far = (rounds + _NEAR_BLOCKS) * _BLOCK
        for first in range(far, begin + limit, _FAR_ROUNDS):
            is_available = self._is_available(np.array(client), first + np.arange(_FAR_ROUNDS))
            found = np.flatnonzero(is_available == available)
            if len(found):
                return first + int(found[0])
        return None

    def _draw_block(self, clients: int, rounds: int) -> list[int]:
        """Return an integer per client; bit j is set if it is available in round j."""
        block = self._cache.get((clients, rounds))
        if block is None:
            client = clients * _BLOCK + np.arange(_BLOCK)[:, np.newaxis]
            is_available = self._is_available(client, rounds * _BLOCK + np.arange(_BLOCK))
            block = np.packbits(is_available, axis=1, bitorder="little").view("<u8")[:, 0].tolist()
            if len(self._cache) >= _MAX_CACHED_BLOCKS:
                del self._cache[next(iter(self._cache))]  # the oldest, since time moves on
            self._cache[clients, rounds] = block
        return block

    def _is_available(self, client: NDArray[np.int64], round_: NDArray[np.int64]) -> NDArray[np.bool_]:
        numbers = uniform(self._seed, Purpose.AVAILABILITY, client, visit=round_ & 0xFFFFFFFF, draw=round_ >> 32)
        return numbers < self._probability
