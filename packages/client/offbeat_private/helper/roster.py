"""Rosters, the files that say what a helper opens; enrolment of runs."""

import secrets
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from offbeat_core.files import write_durably
from offbeat_core.name_check import Name
from offbeat_core.serving.certificates import make_certificates
from offbeat_core.tables.section import Count, NotNegative, Positive, Section
from offbeat_core.tables.validation_errors import error_prefix
from offbeat_core.tokens import new_token, token_hash
from offbeat_private.accounting import check_epsilon_total
from offbeat_private.agreed_plan import AgreedPlan
from offbeat_private.helper.helper_database import EnrolledRun, HelperDatabase
from offbeat_private.helper.helper_folder import HelperFolder
from offbeat_private.masks.keystream import KEY_BYTES
from offbeat_private.masks.signing_key import public_bytes, signing_key
from offbeat_private.noise.correlated_noise import noise_factor
from offbeat_private.signed_terms import MaskedPayload, Mechanism, Terms, sign
from pydantic import AfterValidator, Field, model_validator

TOKEN_PREFIX = "obh_"
"""How the token begins with which a server asks a helper."""

_RUN_BYTES = 16
_ANY_PLAN = AgreedPlan(steps=1, batch_size=1, lr=1.0)


def _client_key(text: str) -> str:
    public_bytes(text)
    return text


class TermsSection(Section):
    """``[terms]``: what the helper opens."""

    length: Count
    """Parameters of the model."""
    buffer: Annotated[int, Field(ge=2)]
    """K: the most clients of a batch."""
    min_clients: Annotated[int, Field(ge=2)]
    """T: the fewest clients of a batch."""
    clip_norm: Positive
    """The largest norm of a client's update."""
    noise_multiplier: NotNegative
    """σ: the noise's standard deviation in units of the clip norm; 0 for masks alone."""
    mechanism: Mechanism = "independent"
    """Whether the noise of different batches is correlated."""
    max_participations: Count
    """k: how often a client takes part at most, over all runs of this helper."""
    min_separation: Count = 1
    """b: the least difference between the numbers of two batches with the same client."""
    bits: Annotated[int, Field(ge=2, le=24)] = 20
    """Bits of a quantised number."""
    normalise: bool = False
    """Whether updates are divided by FedNova's a of their plan: for FedNova, and FedLuck with normalise."""
    payload: MaskedPayload = "delta"
    """The content of masked vectors: updates, or with FedLaAvg and MIFA differences to the client's last one."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """δ, for reports of ε, and for its limit."""
    epsilon_total: Positive | None = None
    """The most ε (zero-out) of a client over all runs of this helper; none for no limit but max_participations."""

    @model_validator(mode="after")
    def _check_together(self) -> "TermsSection":
        if self.epsilon_total is not None:
            check_epsilon_total(self.epsilon_total, self.delta, self.noise_multiplier)
        self.build(bytes(_RUN_BYTES), bytes(32), _ANY_PLAN)
        return self

    def build(self, run: bytes, helper_key: bytes, local: AgreedPlan) -> Terms:
        """Return the terms of a run; ``ValueError`` if the values do not fit together."""
        bands = self.min_separation if self.mechanism == "banded" else 1
        values = self.model_dump(exclude={"delta", "epsilon_total"})
        terms = Terms(run=run, helper_key=helper_key, bands=bands, local=local, **values)
        terms.check_overflow(noise_factor(self.max_participations, self.min_separation, bands))
        return terms


class Roster(Section):
    """A roster's file."""

    terms: TermsSection
    local: AgreedPlan
    clients: dict[Annotated[Name, Field(min_length=1)], Annotated[str, AfterValidator(_client_key)]]
    """The clients' public keys, by name."""

    @model_validator(mode="after")
    def _check_clients(self) -> "Roster":
        names: dict[str, str] = {}
        for name, key in self.clients.items():
            if key in names:
                raise ValueError(f"clients {names[key]} and {name} have the same key: each client needs its own")
            names[key] = name
        if len(names) < self.terms.min_clients:
            raise ValueError(
                f"clients: {len(names)} are fewer than terms.min_clients = {self.terms.min_clients}: add clients"
            )
        return self


class NewRun(NamedTuple):
    """A new run."""

    terms: Terms
    clients: int
    token: str  # the server's; it is not kept anywhere else


def parse_roster(table: dict[str, Any], path: Path) -> Roster:
    """Return the roster of a file's table; a mistake is an ``OffbeatError``."""
    with error_prefix(path, table):
        return Roster.model_validate(table)


def enrol(roster: Roster, path: Path, hosts: Sequence[str]) -> NewRun:
    """Begin a new run in a helper's folder, which is made if it does not exist.

    The helper's key, certificates and its counts of participations are kept; run id, HPKE keys, noise and token are
    new. ``hosts`` are the names and addresses by which the server calls the helper.
    """
    folder = HelperFolder(path)
    folder.make()
    with folder.lock():
        key = signing_key(folder.signing_key)
        terms = roster.terms.build(secrets.token_bytes(_RUN_BYTES), key.public_key().public_bytes_raw(), roster.local)
        signed, token = sign(terms, key, roster.terms.delta), new_token(TOKEN_PREFIX)
        make_certificates(folder.tls, hosts)
        folder.run(terms.run).make(secrets.token_bytes(KEY_BYTES))
        clients = {public_bytes(text): name for name, text in roster.clients.items()}
        with closing(HelperDatabase(path, new=True)) as store:
            run = EnrolledRun(signed, roster.terms.delta, roster.terms.epsilon_total, token_hash(token), tuple(hosts))
            store.enrol(run, clients)
        write_durably(folder.terms, signed.to_bytes())
        folder.erase_runs(but=terms.run)
    return NewRun(terms, len(clients), token)
