"""The settings of a server."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from offbeat_core.digests import DigestKind, has_blake3
from offbeat_core.serving.certificates import Certificates
from offbeat_core.tables.section import Count, Positive, Section
from pydantic import Field, field_validator

from offbeat.early_stop import BestMetric, EarlyStop
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluationSettings
from offbeat.service.engine.privacy_status import PrivacySettings
from offbeat.service.login.login_settings import LoginSettings
from offbeat.service.store_settings import StoreSettings
from offbeat.service.webhook.webhook_settings import WebhookSettings

_WAIT_SECONDS = 600.0  # for clients that evaluate, without leases


FIXED = "fixed"
"""Marks a key that must have the same value whenever the server starts."""


class AddressSettings(Section):
    """The keys of ``[service]`` on connections and tokens."""

    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 for all."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8443
    """The TCP port; 0 for any free port."""
    hosts: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("localhost", "127.0.0.1")
    """The server's names and addresses: in the certificate that it makes itself, and for clients."""
    connections_per_address: Count | None = None
    """The most connections from one address, idle ones included; a quarter of all that the server accepts if it is left
    out. One token has a quarter of them. Not on Windows: use a proxy."""
    token_seconds: Positive | None = None
    """How long a client's token is valid; without limit if it is left out."""
    requests_a_second: Positive = 100.0
    """The most requests of one client a second, on average."""


class ServiceSettings(AddressSettings):
    """The keys of ``[service]`` that the server uses as they are."""

    seed: Annotated[int, Field(ge=0, lt=2**63), FIXED] = 1
    """Fixes the initial model, the selection of clients and the algorithm's random draws."""
    checkpoint_seconds: Positive = 30.0
    """Seconds between two checkpoints."""
    max_update_norm: Positive | None = None
    """The largest norm of an update; 100 times the usual norm if it is left out."""
    max_examples: Count | None = None
    """The largest number of examples that a client may declare; without limit if it is left out."""
    max_share: Annotated[float, Field(ge=0.5, le=1.0), FIXED] = 0.5
    """The largest weight of one client, as a share, where three or more weigh by declared examples; 1 for no limit."""
    digest: DigestKind = "sha256"
    """The digest of updates. `blake3` takes a third of the time, from clients that have its package (`pip install
    'offbeat[blake3]'`); the others send SHA-256."""

    @field_validator("digest")
    @classmethod
    def _check_digest(cls, digest: DigestKind) -> DigestKind:
        if digest == "blake3" and not has_blake3():
            raise ValueError("the package blake3 is missing: pip install 'offbeat[blake3]', or leave digest out")
        return digest

    @classmethod
    def fixed(cls) -> set[str]:
        """Return the keys that must have the same value whenever the server starts."""
        return {name for name, key in cls.model_fields.items() if FIXED in key.metadata}


@dataclass(frozen=True)
class FrontsElsewhere:
    """The address at which a leader listens for fronts on other machines."""

    host: str
    port: int
    certificates: Certificates  # the leader's, for mutual TLS


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """All settings of a server."""

    folder: Path
    service: ServiceSettings = field(default_factory=ServiceSettings)
    store: StoreSettings | None = None  # a log and blobs that several servers share; None: in the folder
    webhook: WebhookSettings | None = None  # None: no messages
    login: LoginSettings | None = None  # None: people have tokens only
    certificates: Certificates | None = None  # for TLS; None for plain HTTP
    front_processes: int = 0  # that serve clients in place of the leader's own process, on its machine
    fronts: FrontsElsewhere | None = None  # None if there are none on other machines
    checkpoint_bytes: int = 2**28  # of updates between two checkpoints, at most; for large models 16 of theirs
    upload_budget: int = 2**34  # bytes of uploads under way, at most
    burst: int = 200  # requests of a client at once
    lease_seconds: float | None = None  # how long the slot of a silent client is kept; None for no limit
    stop_versions: float = math.inf  # the run ends at this version
    best_metric: BestMetric | None = None  # decides which evaluated version is kept beside the newest; None for none
    early_stop: EarlyStop | None = None  # the end by a metric, which has not seen any evaluation
    evaluate_every: int | None = None  # versions from one evaluation to the next; None for no evaluations
    evaluate_command: Sequence[str] = ()  # the program that evaluates versions; empty: not on the server
    evaluate_on_clients: int | None = None  # how many clients evaluate these versions
    lower_is_better: frozenset[str] = frozenset({"loss"})  # the clients' metrics whose highest values are the worst
    privacy: PrivacySettings | None = None  # of sums, for a coordinator with limits on participation
    config: dict[str, Any] = field(default_factory=dict[str, Any])  # must be the same whenever the server starts
    clock: Callable[[], float] = time.monotonic  # seconds

    @property
    def client_evaluation(self) -> ClientEvaluationSettings | None:
        """The settings of evaluation on clients; None if they do not evaluate."""
        if self.evaluate_every is None or self.evaluate_on_clients is None:
            return None
        return ClientEvaluationSettings(
            number=self.evaluate_on_clients,
            every_versions=self.evaluate_every,
            wait_seconds=self.lease_seconds or _WAIT_SECONDS,
            lower_is_better=self.lower_is_better,
            seed=self.service.seed,
        )
