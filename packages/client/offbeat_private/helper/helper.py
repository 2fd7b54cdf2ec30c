"""A helper on its folder: batches in, answers out.

A kill at any moment is harmless: an answer is on disk before its batch is committed, and both before the server gets
it.
"""

import hashlib
import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray
from offbeat_core.files import durable_file
from offbeat_private.accounting import largest_spending
from offbeat_private.helper.helper_database import HelperDatabase
from offbeat_private.helper.helper_folder import EpochKeys, HelperFolder
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.helper.opening_rules import Batch, Rules, epoch_of
from offbeat_private.masks.envelope import Envelope
from offbeat_private.masks.helper_facts import EpochKey, Head, sign_epoch_key
from offbeat_private.masks.keystream import keystream_chunks
from offbeat_private.noise.noise_rows import NoiseSource
from offbeat_private.signed_terms import Terms


class Facts(NamedTuple):
    """The state that the server passes on to clients."""

    head: Head
    signature: bytes  # of the head
    epoch: int
    epoch_key: bytes  # signed


class AnswerFile(NamedTuple):
    """The answer to a batch, in a file of d little-endian words of 32 bits."""

    path: Path
    head: Head
    signature: bytes  # of the head


class Helper:
    """The helper of an enrolled run.

    Any thread may call the methods; batches are opened one after the other.

    Raises:
        OffbeatError: The folder is not an enrolled one, or another process uses it.
    """

    def __init__(self, path: Path) -> None:
        folder = HelperFolder(path)
        with ExitStack() as stack:
            self._store = HelperDatabase(path)
            stack.callback(self._store.close)
            stack.enter_context(folder.lock())
            self.run = self._store.run()
            self.terms = self.run.signed_terms.terms
            files = folder.run(self.terms.run)
            self._answers = files.answers
            self._keys = EpochKeys(files.keys)
            self._noise = _noise_source(self.terms, files.noise_secret.read_bytes())
            self._signing_key = folder.read_signing_key(self.terms.helper_key)
            self._lock = threading.Lock()
            self._rules: Rules | None = None
            rules = self._load_rules()
            self._terms_digest = rules.terms_digest
            self._facts = self._refresh(rules)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Let another process use the folder."""
        with self._lock:
            self._stack.close()

    def facts(self) -> Facts:
        """Return the newest head and the epoch's key."""
        return self._facts

    def open(self, number: int, records: Sequence[bytes]) -> AnswerFile:
        """Return the answer to a batch; one that was opened before gets the same answer.

        Raises:
            HelperRefusal: The batch must not be opened, or the disk cannot be written.
        """
        with self._lock:
            try:
                rules = self._load_rules()
                batch = rules.check(number, records)
                if batch is not None:
                    self._commit(rules, batch)
                self._facts = self._refresh(rules)
                head = rules.opened.heads[number - 1]
                return AnswerFile(self._path(number), head, self._sign(head))
            except HelperRefusal as refusal:
                if refusal.kind == "rolled-back":
                    self._store.stop()
                raise
            except (OSError, sqlite3.Error) as error:
                self._rules = None  # the disk alone knows whether the batch was committed
                raise HelperRefusal("no-space", f"the helper's disk cannot be used ({error}): try again") from error

    def _load_rules(self) -> Rules:
        if self._rules is None:
            total = self.run.epsilon_total
            largest = math.inf if total is None else largest_spending(total, self.run.delta)
            self._rules = Rules(self.terms, self._store.roster(), self._store.opened(), largest)
        return self._rules

    def _commit(self, rules: Rules, batch: Batch) -> None:
        seeds = open_seeds(batch.envelopes, self._keys.read)
        noise = None if self._noise is None else self._noise.noise(batch.number, rules.noise_digests(batch))
        words = sum_of_masks(seeds, self.terms.length, noise)
        with durable_file(self._path(batch.number), 0o600) as file:
            file.write(words.data)
        head = rules.head_after(batch, hashlib.sha256(words.data).digest())
        self._store.commit(batch, head, seeds)
        rules.record(batch, head)

    def _path(self, number: int) -> Path:
        return self._answers / str(number)

    def _sign(self, head: Head) -> bytes:
        return self._signing_key.sign(head.signed_message(self._terms_digest))

    def _refresh(self, rules: Rules) -> Facts:
        """Make what the epoch needs, erase what it ends, and return the facts."""
        epoch, head = rules.epoch, rules.head
        self._keys.keep(epoch)
        for path in list(self._answers.iterdir()):
            number = int(path.name) if path.name.isdecimal() else 0  # 0: the rest of a write that was cut off
            if not (1 <= number <= head.number and epoch_of(number) >= epoch - 1):
                path.unlink()
        key = EpochKey(epoch, self._keys.read(epoch).public_key().public_bytes_raw())
        return Facts(head, self._sign(head), epoch, sign_epoch_key(key, self.terms, self._signing_key))


def _noise_source(terms: Terms, secret: bytes) -> NoiseSource | None:
    if not terms.noise_multiplier:
        return None
    return NoiseSource(
        secret,
        terms.length,
        noise_multiplier=terms.noise_multiplier,
        largest=terms.largest,
        participations=terms.max_participations,
        separation=terms.min_separation,
        bands=terms.bands,
    )


def open_seeds(envelopes: Sequence[Envelope], key_of: Callable[[int], X25519PrivateKey]) -> list[bytes]:
    """Return the seeds of envelopes; ``key_of`` returns an epoch's key.

    Raises:
        HelperRefusal: An envelope cannot be opened; its client is named.
    """
    seeds: list[bytes] = []
    for envelope in envelopes:
        try:
            seeds.append(envelope.open(key_of(envelope.binding.epoch)))
        except ValueError:
            client = envelope.binding.client
            raise HelperRefusal(
                "sealed-wrongly",
                f"client {client.hex()[:16]}: its seed cannot be opened with the helper's key: drop its record",
                client,
            ) from None
    return seeds


def sum_of_masks(seeds: Iterable[bytes], length: int, noise: NDArray[np.int64] | None) -> NDArray[np.uint32]:
    """Return the sum of the seeds' masks minus the noise, modulo 2³².

    Masks are made a piece at a time, so the memory does not depend on how many there are.

    Args:
        seeds: The masks' seeds.
        length: d, the length of a mask.
        noise: Array ``(d,)``, in steps; None for no noise.

    Returns:
        Array ``(d,)`` of uint32.
    """
    total = np.zeros(length, np.uint32)
    if noise is not None:
        total -= noise.astype(np.uint32)
    for seed in seeds:
        for part, mask in keystream_chunks(seed, 0, length):
            total[part] += mask
    return total
