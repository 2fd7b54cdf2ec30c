"""Server files: all sections, reading, overrides."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from offbeat_core.errors import OffbeatError
from offbeat_core.tables.section import Count, Positive, Section
from offbeat_core.tables.validation_errors import error_prefix
from pydantic import Field, model_validator

from offbeat.algorithms import Algorithm
from offbeat.config.algorithm_table import build_algorithm, hyper_parameters_of
from offbeat.config.experiment_file import metrics_of
from offbeat.config.experiment_sections import (
    ALTERNATIVES,
    AlgorithmTable,
    DataSection,
    EarlyStopSection,
    EvaluateSection,
    Metric,
    ServerSection,
    metric_name,
)
from offbeat.config.fronts_section import FrontsSection
from offbeat.config.local_section import LocalSection
from offbeat.config.login_section import LoginSection, check_url
from offbeat.config.measured_metrics import best_metric, check_not_private, lower_is_better, server_early_stop
from offbeat.config.model_sections import ModelSection
from offbeat.config.privacy_section import PrivacySection
from offbeat.config.set_option import read_changed
from offbeat.config.user_paths import UserPath
from offbeat.config.webhook_section import WebhookSection
from offbeat.early_stop import BestMetric, EarlyStop
from offbeat.service.server_settings import FIXED, AddressSettings, FrontsElsewhere, ServerSettings, ServiceSettings
from offbeat.service.store_settings import StoreSettings
from offbeat.training.objectives import METRICS
from offbeat.training.trainer_names import TRAINING_LOSS


class PlaceSection(AddressSettings):
    """The keys of ``[service]`` that say where a server is."""

    folder: UserPath
    """The server's folder; made if it does not exist."""
    tls: bool = True
    """False for plain HTTP, for instance behind a proxy."""
    certificate: UserPath | None = None
    """Your own certificate chain, PEM; the server makes a certificate if it is left out."""
    key: UserPath | None = None
    """Its private key, PEM."""

    @model_validator(mode="after")
    def _check_certificate(self) -> "PlaceSection":
        if (self.certificate is None) is not (self.key is None):
            raise ValueError("set both certificate and key, or neither")
        if self.certificate and not self.tls:
            raise ValueError("certificate needs tls = true: set it, or leave certificate and key out")
        return self


class ServiceSection(PlaceSection, ServiceSettings):
    """``[service]``: the server's folder, address, certificate, and limits on clients."""

    clients: Annotated[Count, FIXED]
    """N: how many clients may enrol; revoked ones are included."""
    initial_model: Annotated[UserPath | None, FIXED] = None
    """A model that `offbeat server export` wrote: this run begins from it."""
    keep_best: str | None = None
    """The metric of [evaluate] by which the best evaluated version is kept beside the newest: one on the test set, or
    one over clients such as client_accuracy. `offbeat server export --best` copies it."""
    helper_terms: UserPath | None = None
    """The helper's terms.json, for masked updates: privacy.helper."""
    helper_token_file: UserPath | None = None
    """A file with the token that the helper's enrolment printed."""
    helper_ca: UserPath | None = None
    """Certificates to trust for the helper, PEM; those of the system if it is left out."""
    noise_secret: UserPath | None = None
    """For noise without a helper where servers share a store: a file of 32 random bytes, the same on each."""
    earlier_runs: Annotated[tuple[UserPath, ...], Field(strict=False)] = ()
    """Folders of servers whose runs have ended, and count towards privacy.epsilon_total, by the clients' names."""


class VisitsSection(ServerSection):
    """``[server]``: how long the server waits for clients."""

    lease_seconds: Positive | None = 600.0
    """How long a slot is kept for a silent client."""
    max_visit_seconds: Positive = 14_400.0
    """How long a slot is kept at most, also for a client that sends heartbeats."""


class VersionsSection(EarlyStopSection):
    """``[stop]``: when the run ends."""

    versions: Count | None = None
    """Versions of the model; unlimited if it is left out."""

    @model_validator(mode="after")
    def _check_some(self) -> "VersionsSection":
        if self.versions is None and not self.is_early:
            raise ValueError("set versions, target or patience")
        return self


class ServerFile(Section):
    """A file: one run of one algorithm with real clients."""

    service: ServiceSection
    store: StoreSettings | None = None
    """A log and large files that several servers share: one of them leads, the others stand by."""
    webhook: WebhookSection | None = None
    """Messages about the run to a URL of yours; none if it is left out."""
    login: LoginSection | None = None
    """People log in to the live page through an OpenID Connect provider; by tokens alone if it is left out."""
    fronts: FrontsSection | None = None
    """Servers on other machines that serve clients for the one that leads."""
    model: ModelSection
    data: DataSection | None = None
    """The data set for evaluations, which also decides the size of a built-in model; clients have data of their own."""
    local: LocalSection
    server: VisitsSection = VisitsSection()
    stop: VersionsSection | None = None
    """The run does not end if it is left out."""
    evaluate: EvaluateSection | None = None
    """Which versions are measured on the test set, in a process of its own, or by clients; none if it is left out."""
    privacy: PrivacySection | None = None
    """Limits on one client's influence, noise and masks; none of them if it is left out."""
    algorithm: AlgorithmTable

    @model_validator(mode="after")
    def _check_algorithm(self) -> "ServerFile":
        if self.algorithm.algorithm is None:
            raise ValueError("algorithm.algorithm is missing: name one, for instance algorithm = 'fedbuff'")
        if self.algorithm.local:
            raise ValueError("algorithm.local: put it into [local], since the server runs one algorithm only")
        return self

    @model_validator(mode="after")
    def _check_data(self) -> "ServerFile":
        for key in ("fallback", "augmentation"):
            if getattr(self.data, key, None) is not None:
                raise ValueError(f"data.{key} is for simulations: leave it out")
        return self

    @model_validator(mode="after")
    def _check_privacy(self) -> "ServerFile":
        helper, service = self.privacy and self.privacy.helper, self.service
        if service.earlier_runs and (self.privacy is None or self.privacy.epsilon_total is None):
            raise ValueError("service.earlier_runs count towards privacy.epsilon_total: set that")
        if helper is not None:
            for key in ("helper_terms", "helper_token_file"):
                if getattr(service, key) is None:
                    raise ValueError(f"service.{key} is missing: privacy.helper needs it")
            if not helper.startswith("https://"):
                raise ValueError(f"privacy.helper must be an https address, got {helper!r}")
        elif service.helper_terms or service.helper_token_file or service.helper_ca:
            raise ValueError("service.helper_terms, helper_token_file and helper_ca are for privacy.helper: set that")
        if self.privacy is not None and (self.server.max_update_norm or service.max_update_norm):
            raise ValueError("max_update_norm does not go with [privacy], where clip_norm is the limit: leave it out")
        if self.privacy is not None and service.max_examples is not None:
            raise ValueError(
                "service.max_examples does not go with [privacy], where a client's number of examples decides nothing: "
                "leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_store(self) -> "ServerFile":
        makes_noise = self.privacy is not None and self.privacy.helper is None and self.privacy.noise_multiplier > 0
        is_needed = self.store is not None and makes_noise
        if is_needed and self.service.noise_secret is None:
            raise ValueError("service.noise_secret is missing: noise without a helper needs one secret on all servers")
        if self.service.noise_secret is not None and not is_needed:
            raise ValueError(
                "service.noise_secret is for noise without a helper where servers share a [store]: leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_fronts(self) -> "ServerFile":
        if self.fronts is not None and self.store is None:
            raise ValueError(
                "fronts: fronts on other machines need [store]: set it, or use offbeat server start --fronts N"
            )
        return self

    @model_validator(mode="after")
    def _check_login(self) -> "ServerFile":
        check_url(self.login, has_tls=self.service.tls)
        return self

    @model_validator(mode="after")
    def _check_norm(self) -> "ServerFile":
        # The limit of [server] has always been the one that applied, and must not change when a server restarts.
        if self.server.max_update_norm is not None and self.service.max_update_norm is not None:
            raise ValueError("server.max_update_norm and service.max_update_norm are one limit: remove the latter")
        return self

    @model_validator(mode="after")
    def _check_evaluation(self) -> "ServerFile":
        if self.evaluate is None:
            return self
        if self.evaluate.every_versions is None:
            raise ValueError("evaluate.every_seconds is for simulations: set evaluate.every_versions")
        if self.data is None and self.evaluate.on_clients is None:
            raise ValueError("evaluate needs a test set: name a data set in data.name, or set evaluate.on_clients")
        if self.evaluate.on_clients is not None:
            check_not_private(self.privacy is not None)
        if TRAINING_LOSS in (self.evaluate.metrics or ()):
            raise ValueError("evaluate.metrics: training_loss is for simulations, the clients have the training set")
        return self

    @model_validator(mode="after")
    def _check_metrics(self) -> "ServerFile":
        self._early_stop()
        self._best_metric()
        return self

    def _early_stop(self) -> EarlyStop | None:
        if self.stop is None:
            return None
        return server_early_stop(self.stop, self.evaluate, self._metrics(), has_test_set=self.data is not None)

    def _best_metric(self) -> BestMetric | None:
        has_test_set = self.data is not None
        return best_metric(self.service.keep_best, self.evaluate, self._metrics(), has_test_set=has_test_set)

    def _metrics(self) -> Sequence[Metric]:
        return () if self.evaluate is None else metrics_of(self.evaluate, self.model)

    def settings(self, **more: Any) -> ServerSettings:
        """Return the settings of the service that the file holds, and other fields."""
        # Which updates count must not depend on their norms where they are private.
        fronts = self.fronts
        limit = math.inf if self.privacy else self.server.max_update_norm or self.service.max_update_norm
        values: dict[str, Any] = {
            "folder": Path(self.service.folder),
            "store": self.store,
            "webhook": self.webhook and self.webhook.settings(),
            "login": self.login and self.login.settings(),
            "fronts": fronts and FrontsElsewhere(fronts.host, fronts.port, fronts.certificates),
            "service": self.service.model_copy(update={"max_update_norm": limit}),
            "lease_seconds": self.server.lease_seconds,
            "stop_versions": (self.stop and self.stop.versions) or math.inf,
            "early_stop": self._early_stop(),
            "best_metric": self._best_metric(),
        }
        if self.evaluate is not None:
            metrics = [*METRICS, *map(metric_name, self.evaluate.metrics or ())]
            values |= {
                "evaluate_every": self.evaluate.every_versions,
                "evaluate_on_clients": self.evaluate.on_clients,
                "lower_is_better": frozenset(lower_is_better(self.evaluate, metrics)),
            }
        return ServerSettings(**values | more)

    def build_algorithm(self) -> Algorithm:
        """Return the algorithm, not started."""
        with error_prefix("algorithm"):
            return build_algorithm(str(self.algorithm.algorithm), self.algorithm.hyper_parameters, self.service.seed)

    def resolved(self) -> dict[str, Any]:
        """Return what must not change when the server restarts, with defaults."""
        table = self.model_dump(
            exclude_none=True,
            exclude={"service", "store", "webhook", "login", "fronts", "algorithm", "evaluate"},
            mode="json",
        )
        if self.privacy is not None:  # the helper's address may change
            table["privacy"] |= {"helper": self.privacy.helper is not None}
        service = self.service.model_dump(include=self.service.fixed(), exclude_none=True, mode="json")
        algorithm = {"algorithm": self.algorithm.algorithm, **hyper_parameters_of(self.build_algorithm())}
        return {**table, "service": service, "algorithm": algorithm}


def load(path: Path, overrides: Sequence[str] = ()) -> ServerFile:
    """Read a server's file; arguments and errors as for an experiment's."""
    table = read_changed(path, overrides, ALTERNATIVES)
    if "algorithms" in table and "service" not in table:
        raise OffbeatError(f"{path} is an experiment's file: offbeat run {path}; a server's has [service], [algorithm]")
    with error_prefix(path, table):
        server = ServerFile.model_validate(table, context={"folder": path.parent})
        server.build_algorithm()
        return server
