"""A coordinator that nobody disturbs, fed with a server's log: what the server must have come to."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from offbeat.config.server_file import load
from offbeat.coordinator import Receipt, RecordedCall
from offbeat.service.store.model_files import ModelFiles
from offbeat.worlds.serve import build_coordinator

Told = dict[tuple[int, int], Receipt]
"""Receipts by client and visit."""
MakeDelta = Callable[[int, int, Tensor, Tensor | None], Tensor]
"""Maps a client, a visit, the model that it began from and its gradients' offset to what it must have learnt.

That is start − end.
"""


@dataclass
class Undisturbed:
    """The run that the log in a server's folder, or ``rows``, describes; ``encode`` makes the body of an upload.

    Attributes:
        coordinator: At the end of the log.
        receipts: All receipts that clients may have got, except of visits that did not count since they were replaced
            or the run finished: that is known without a record of their updates.
        replaced: By client and visit those that ended before an update of theirs came: another one was given out in
            their place, or the run finished.
        last: For each client the version that its last counted update was made from.
        memories: For each client its memory of that update: its delta, if its next update is a difference to it; its
            c_i, if its gradients are corrected.
    """

    file: Path
    folder: Path
    make_delta: MakeDelta
    encode: Callable[[Tensor], bytes]
    rows: list[Any] | None = None
    receipts: Told = field(default_factory=Told)
    replaced: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    last: dict[int, int] = field(default_factory=dict[int, int])
    memories: dict[int, Tensor] = field(default_factory=dict[int, Tensor])

    def __post_init__(self) -> None:
        self.coordinator, _ = build_coordinator(load(self.file))
        self._starts: dict[int, tuple[Tensor, Tensor | None]] = {}  # by version, and what went down beside it
        self.model_digests: dict[int, str] = {}  # of all that is downloaded, by version
        self._note_model()
        rows = _rows(self.folder) if self.rows is None else self.rows
        assert [number for number, *_ in rows] == list(range(1, len(rows) + 1))
        for _, owner, name, text, digest in rows:
            if owner == "coordinator":
                self._make_again(name, json.loads(text), digest)
                self._note_model()

    def check(self, told: Told) -> None:
        """Check that the log and the newest model are what clients and a coordinator know of."""
        for which, receipt in told.items():
            expected = self.receipts.get(which)
            if expected is None and which in self.replaced:
                assert not receipt.counted, f"client, visit {which}: {receipt}"
                continue
            assert expected is not None, f"client, visit {which}: {receipt} was acknowledged and lost"
            # Of an older visit that did not count, nobody knows any more how stale it was.
            assert receipt == expected or not (receipt.counted or expected.counted), f"{which}: {receipt}, {expected}"
        algorithm = self.coordinator.algorithm
        assert algorithm.version > 0
        assert self.coordinator.statistics.counted == sum(receipt.counted for receipt in self.receipts.values())
        models = ModelFiles(self.folder / "models", [("weight", (1, algorithm.model.numel()))])
        assert models.versions() >= {algorithm.version}
        saved = load_file(models.path(algorithm.version))["weight"].view(-1)
        assert torch.equal(saved, algorithm.model), "the model is not that of the log"

    def check_reads(self, digests: dict[int, str]) -> None:
        """Check that the parameters that were downloaded, by version, are those that the log makes of each."""
        assert digests
        for version, digest in digests.items():
            assert self.model_digests[version] == digest, f"version {version} is not that of the log"

    def _note_model(self) -> None:
        algorithm = self.coordinator.algorithm
        if algorithm.version not in self.model_digests:
            down = algorithm.down()
            beside = b"" if down is None else down.numpy().tobytes()
            digest = hashlib.sha256(beside + algorithm.model.numpy().tobytes()).hexdigest()
            self.model_digests[algorithm.version] = digest

    def _make_again(self, name: str, arguments: dict[str, Any], digest: str | None) -> None:
        arguments.pop("outcome", None)  # which is what the server has counted
        if name == "receive":
            self._receive(arguments, digest)
        elif name == "offer":
            receipt = self.coordinator.offer(**arguments)
            assert receipt is not None
            self._note(arguments, receipt)
        else:
            visits = self.coordinator.visits
            if name == "finish":
                self.replaced |= {(open_one.client, open_one.visit) for open_one in visits.open_assignments()}
            if name == "assign":
                before = map(visits.assignment, arguments["clients"])
                self.replaced |= {(open_one.client, open_one.visit) for open_one in before if open_one is not None}
                used = {assignment.version for assignment in visits.open_assignments()}
                self._starts = {version: start for version, start in self._starts.items() if version in used}
                algorithm = self.coordinator.algorithm
                self._starts[algorithm.version] = algorithm.model, algorithm.down()
            self.coordinator.replay(RecordedCall(name, arguments))

    def _receive(self, arguments: dict[str, Any], digest: str | None) -> None:
        client, visit = arguments["client"], arguments["visit"]
        assignment = self.coordinator.visits.assignment(client)
        assert assignment is not None, "an update was applied twice"
        assert assignment.visit == visit
        is_difference = self.coordinator.algorithm.payload == "difference"
        start, offset = self._starts[assignment.version]
        if arguments["since"] is not None:
            assert arguments["since"] == self.last[client]
            offset = None if offset is None else offset - self.memories[client]
        vector = delta = self.make_delta(client, visit, start, offset)
        if is_difference and arguments["since"] is not None:
            vector = delta - self.memories[client]
        assert hashlib.sha256(self.encode(vector)).hexdigest() == digest, "that is not what the client has learnt"
        receipt = self.coordinator.receive(vector=vector, base=None, **arguments)
        self._note(arguments, receipt)
        if receipt.counted:
            self.last[client] = assignment.version
            if offset is not None:
                self.memories[client] = delta / assignment.plan.path - offset
            elif is_difference:
                self.memories[client] = delta

    def _note(self, arguments: dict[str, Any], receipt: Receipt) -> None:
        which = arguments["client"], arguments["visit"]
        assert which not in self.receipts, "an update was applied twice"
        self.receipts[which] = receipt


def _rows(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        return database.execute("SELECT number, owner, name, arguments, digest FROM log ORDER BY number").fetchall()
