"""A masked run: a server on a real socket, a helper in this process, and clients that make shares."""

import base64
import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from offbeat_core.http.service_errors import UnreachableError
from offbeat_core.messages import PlanMessage
from offbeat_core.model_file import DOWN, model_digest
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.masks.helper_facts import EpochKey, Head
from offbeat_private.masks.share import make_share
from offbeat_private.signed_terms import Terms, largest_masked
from safetensors.numpy import load

from offbeat.algorithms import Algorithm, FedBuff
from offbeat.algorithms.components.buffers.secret import secret
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine.privacy_status import PrivacySettings
from offbeat.service.masked.helper_protocol import HelperAnswer, HelperFacts, HelperRefusedError
from tests.offbeat_private.helper.conftest import KEYS, enrol_clients
from tests.service.conftest import LENGTH, Peer, Served
from tests.service.conftest import running as running_server
from tests.service.http_client import until

TERMS: dict[str, Any] = {
    "length": LENGTH,
    "buffer": 3,
    "min_clients": 2,
    "noise_multiplier": 0.0,
    "max_participations": 50,
}


class InProcessHelper:
    """A helper on its folder, with the methods of ``HelperConnection``; it can be made unreachable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.helper = Helper(folder)
        self.terms = self.helper.terms
        self.is_reachable = True
        self.asked: list[tuple[int, list[bytes]]] = []  # batches
        self.answered: Callable[[int, NDArray[np.uint32]], NDArray[np.uint32]] = lambda _, words: words

    def facts(self) -> HelperFacts:
        self._reach()
        facts = self.helper.facts()
        return HelperFacts(self.terms.run, self.terms.digest, facts.epoch, facts.epoch_key, facts.head, facts.signature)

    def open(self, number: int, records: Sequence[bytes]) -> HelperAnswer:
        self._reach()
        self.asked.append((number, sorted(records)))
        try:
            answer = self.helper.open(number, records)
        except HelperRefusal as refusal:
            raise HelperRefusedError(refusal.kind, refusal.detail, refusal.client) from None
        words = np.frombuffer(answer.path.read_bytes(), "<u4").astype(np.uint32)
        return HelperAnswer(self.answered(number, words), answer.head, answer.signature)

    def _reach(self) -> None:
        if not self.is_reachable:
            raise UnreachableError("the helper cannot be reached")

    def close(self) -> None:
        self.helper.close()


class Ready(NamedTuple):
    """A share with what the server asked for when it was made."""

    body: bytes
    head: dict[str, Any]
    quantised: NDArray[np.int32] | None = None


class MaskedClient:
    """A client that makes shares, whose key is the roster's of a number."""

    def __init__(self, peer: Peer, key: int, terms: Terms) -> None:
        self.peer = peer
        self.key: Ed25519PrivateKey = KEYS[key]
        self.terms = terms

    def check_in(self) -> dict[str, Any] | None:
        return self.peer.check_in()

    def state(self, visit: dict[str, Any]) -> dict[str, Any]:
        answer = self.peer.http.get(f"/v1/uploads/{visit['number']}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def model_digest(self, version: int) -> bytes:
        content = self.peer.http.get(f"/v1/models/{version}").content
        return model_digest({name: array for name, array in load(content).items() if name != DOWN})

    def share(self, visit: dict[str, Any], delta: torch.Tensor, asked: Any = None, /, **changes: Any) -> Ready:
        asked = asked or self.state(visit)["share"]
        epoch, head = asked["epoch"], asked["head"]
        values: dict[str, Any] = {
            "divisor": self.terms.divisor(PlanMessage(**visit["plan"]).plan()),
            "scale": asked["scale"],
            "terms": self.terms,
            "visit": visit["number"],
            "start_version": visit["version"],
            "version": asked["version"],
            "model": self.model_digest(visit["version"]),
            "head": Head(head["number"], bytes.fromhex(head["digest"])),
            "head_signature": bytes.fromhex(head["signature"]),
            "epoch_key": EpochKey(epoch["number"], bytes.fromhex(epoch["public_key"])),
            "signing_key": self.key,
        }
        share = make_share(delta.numpy(), **values | changes)
        body = share.masked.astype("<u4").tobytes()
        return Ready(body, header(visit, body, share.record, share.salt), share.quantised)

    def put(self, visit: dict[str, Any], ready: Ready, **changes: Any) -> httpx.Response:
        return self.peer.put(visit, ready.body, head=ready.head | changes)

    def send(self, visit: dict[str, Any], delta: torch.Tensor, **changes: Any) -> dict[str, Any]:
        answer = self.put(visit, self.share(visit, delta, **changes))
        assert answer.status_code == 200, answer.text
        return answer.json()["receipt"]

    def give(self, delta: torch.Tensor) -> dict[str, Any]:
        """Do a whole visit."""
        visit = self.check_in()
        assert visit is not None
        return self.send(visit, delta)


def header(visit: dict[str, Any], body: bytes, record: bytes, salt: bytes) -> dict[str, Any]:
    return {
        "version": visit["version"],
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "since": None,
        "salt": salt.hex(),
        "share": base64.b64encode(record).decode(),
    }


class MaskedServer(NamedTuple):
    served: Served
    helper: InProcessHelper

    def client(self, number: int) -> MaskedClient:
        """Enrol a client with a key of the roster."""
        return MaskedClient(self.served.enrol(), number, self.helper.terms)

    def again(self, client: MaskedClient) -> MaskedClient:
        """Return a client of an earlier server."""
        token = client.peer.http.headers["authorization"].removeprefix("Bearer ")
        again = MaskedClient(self.served.peer(token), 0, self.helper.terms)
        again.key = client.key
        return again

    @property
    def algorithm(self) -> Algorithm:
        return self.served.service.engine.coordinator.algorithm

    def status(self) -> dict[str, Any]:
        return self.served.admin.http.get("/v1/status").json()["privacy"]


@contextmanager
def masked_server(
    folder: Path,
    helper: InProcessHelper,
    make: Callable[[], Algorithm] = lambda: FedBuff(buffer_size=2, concurrency=4),
    *,
    limit: float = 50,
    separation: int = 1,
    **settings: Any,
) -> Generator[MaskedServer]:
    """Run a server of masked sums."""
    terms = helper.terms

    def make_secret() -> Algorithm:
        algorithm = make()
        bound = terms.buffer * largest_masked(terms.bits, terms.payload)
        algorithm.wrap(secret(step=terms.step, bound=bound, least=terms.min_clients))
        return algorithm

    clients = settings.pop("clients", 5)
    privacy = PrivacySettings(terms.noise_multiplier, 1e-5, terms, helper)
    participation = Participation(clients, limit=limit, separation=separation)
    with running_server(
        folder, make_secret, clients=clients, participation=participation, privacy=privacy, **settings
    ) as served:
        server = MaskedServer(served, helper)
        if helper.is_reachable:
            until(lambda: server.status()["helper"] == "ok")
        yield server


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offbeat.service.masked.sum_opener._FIRST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr("offbeat.service.masked.sum_opener._LAST_RETRY_SECONDS", 0.05)


@contextmanager
def enrolled_helper(folder: Path, clients: int = 8, **terms: Any) -> Generator[InProcessHelper]:
    """Enrol a helper of clients 0, 1, …, and run it in this process."""
    enrol_clients(folder, clients, **TERMS | terms)
    with closing(InProcessHelper(folder)) as made:
        yield made


@pytest.fixture
def helper(tmp_path: Path) -> Generator[InProcessHelper]:
    """A helper without noise."""
    with enrolled_helper(tmp_path / "helper") as made:
        yield made


@pytest.fixture
def server(tmp_path: Path, helper: InProcessHelper) -> Generator[MaskedServer]:
    """A server of FedBuff (K = 2, T = 2) for five clients and a model of six parameters."""
    with masked_server(tmp_path / "server", helper) as made:
        yield made
