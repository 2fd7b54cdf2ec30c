"""The settings of a server."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offbeat_core.serving.certificates import Certificates

from offbeat.early_stop import EarlyStop
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluationSettings
from offbeat.service.engine.privacy_status import PrivacySettings

_WAIT_SECONDS = 600.0  # for clients that evaluate, without leases


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The settings of a server.

    ``[service]`` in a server's file sets the attributes that have the names of its keys.

    Attributes:
        folder: The folder that the server keeps everything in.
        host: The address to listen at.
        port: The TCP port; 0 for any free one.
        hosts: The names and addresses by which clients call the server.
        certificates: For TLS; None for plain HTTP.
        seed: The run's seed.
        connections_per_address: Largest number of connections of one address; None for a quarter of all.
        token_seconds: How long a client's token is valid; None for no limit.
        checkpoint_seconds: Seconds between two checkpoints.
        checkpoint_bytes: Largest number of bytes of updates between two checkpoints; for large models 16 times the
            model's size.
        upload_budget: Largest number of bytes of uploads under way.
        max_update_norm: Largest norm of an update; None for 100 times the usual one.
        max_examples: Largest number of examples that a client may declare; None for any.
        max_share: Largest share of a client in the objective, ½ … 1; the algorithm's buffer limits its share in a step.
        requests_a_second: Requests of a client, in the long run.
        burst: Requests of a client at once.
        lease_seconds: How long the slot of a silent client is kept; None for no limit.
        stop_versions: The run ends at this version.
        early_stop: The end by a metric, which has not seen any evaluation; None if there is none.
        evaluate_every: Number of versions from one evaluation to the next; None for no evaluations.
        evaluate_command: The program that evaluates versions; empty for no evaluation on the server.
        evaluate_on_clients: Number of clients that evaluate these versions; None for none.
        lower_is_better: The clients' metrics whose highest values are the worst.
        privacy: The privacy of sums, for a coordinator with limits on participation; None for plain sums.
        config: The run's configuration, which must be the same whenever the server starts.
        clock: Monotonic seconds.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8443
    hosts: Sequence[str] = ("localhost", "127.0.0.1")
    certificates: Certificates | None = None
    seed: int = 1
    connections_per_address: int | None = None
    token_seconds: float | None = None
    checkpoint_seconds: float = 30.0
    checkpoint_bytes: int = 2**28
    upload_budget: int = 2**34
    max_update_norm: float | None = None
    max_examples: int | None = None
    max_share: float = 0.5
    requests_a_second: float = 20.0
    burst: int = 200
    lease_seconds: float | None = None
    stop_versions: float = math.inf
    early_stop: EarlyStop | None = None
    evaluate_every: int | None = None
    evaluate_command: Sequence[str] = ()
    evaluate_on_clients: int | None = None
    lower_is_better: frozenset[str] = frozenset({"loss"})
    privacy: PrivacySettings | None = None
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    clock: Callable[[], float] = time.monotonic

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
            seed=self.seed,
        )
