"""``[privacy]`` on a server: terms, helper, noise, limits on participation."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_text
from offbeat_private.signed_terms import SignedTerms, verify

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.server_file import ServerFile
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine.privacy_status import Budget, PrivacySettings
from offbeat.service.masked.helper_connection import HelperConnection
from offbeat.service.server.spent_privacy import spent_by_identity
from offbeat.service.store.noise_secret import copied_noise_secret, fingerprint, noise_secret
from offbeat.worlds.privacy import Protection, protection

_AGREED = ("min_clients", "clip_norm", "noise_multiplier", "mechanism", "max_participations", "min_separation", "bits")

_TWO_STEPS = LocalPlan(steps=2, batch_size=1, lr=0.1)


def protect_served(file: ServerFile, algorithm: Algorithm, length: int) -> Participation | None:
    """Put the wrapper of ``[privacy]`` around an algorithm's buffer, before its start.

    Without a helper, the noise is made of the secret in the server's folder, or in ``service.noise_secret``.

    Returns:
        The limits on clients' parts in sums; None without the section.

    Raises:
        ValueError: The section does not fit the algorithm or the run.
        OffbeatError: The helper's terms differ from the section or the model.
    """
    if file.privacy is None:
        return None
    if file.privacy.helper is not None and file.privacy.epsilon_total is not None:
        raise ValueError(
            "privacy.epsilon_total does not go with a helper, which counts by key over all of its runs: set "
            "terms.epsilon_total in its roster"
        )
    versions = (file.stop and file.stop.versions) or math.inf
    asked = protection(file.privacy, algorithm, file.service.clients, length, versions)
    if file.privacy.helper is None:
        secret = _noise_secret(file) if file.privacy.noise_multiplier else bytes(32)
    else:
        signed = _signed_terms(file)
        _check_terms(signed, asked, str(file.service.helper_terms))
        normalises = algorithm.divisor(_TWO_STEPS) != 1
        if signed.terms.normalise != normalises:
            raise OffbeatError(
                f"{file.service.helper_terms}: normalise is {str(not normalises).lower()}, but {algorithm.name} needs "
                f"{str(normalises).lower()}: enrol with terms.normalise = {str(normalises).lower()}"
            )
        secret = bytes(32)  # the helper's noise is only measured here, not made
    asked.wrap(algorithm, asked.noise(secret), secret)
    return asked.participation()


def check_plans(file: ServerFile, algorithm: Algorithm, plan: LocalPlan) -> None:
    """Check that the helper's terms allow the first plan of each client.

    Args:
        file: The server's file.
        algorithm: It has started.
        plan: The run's plan.

    Raises:
        OffbeatError: They do not.
    """
    if file.privacy is None or file.privacy.helper is None:
        return
    local = _signed_terms(file).terms.local
    for made in {algorithm.plan(client, plan.at(0)) for client in range(algorithm.clients)}:
        try:
            local.check(made, 0)
        except ValueError as error:
            raise OffbeatError(
                f"{file.service.helper_terms}: a client's {error}: enrol with the [local] of this file"
            ) from None


@contextmanager
def privacy_settings(file: ServerFile, length: int) -> Generator[PrivacySettings | None]:
    """Connect to the helper, if there is one; yield the settings of ``[privacy]``."""
    section = file.privacy
    if section is None:
        yield None
    elif section.helper is None:
        secret = fingerprint(_noise_secret(file)) if section.noise_multiplier else None
        budget = None
        if section.epsilon_total is not None:
            budget = Budget(section.epsilon_total, spent_by_identity(map(Path, file.service.earlier_runs)))
        yield PrivacySettings(section.noise_multiplier, section.delta, noise_secret=secret, budget=budget)
    else:
        ca = None if file.service.helper_ca is None else Path(file.service.helper_ca)
        with HelperConnection(section.helper, _token(file), ca, length) as helper:
            yield PrivacySettings(section.noise_multiplier, section.delta, _signed_terms(file).terms, helper)


def _noise_secret(file: ServerFile) -> bytes:
    copied = file.service.noise_secret
    return noise_secret(Path(file.service.folder)) if copied is None else copied_noise_secret(Path(copied))


def _signed_terms(file: ServerFile) -> SignedTerms:
    path = Path(file.service.helper_terms or "")
    try:
        return verify(read_text(path).encode())
    except OSError as error:
        raise OffbeatError(f"cannot read service.helper_terms = {path}: {error.strerror}") from None
    except ValueError as error:
        raise OffbeatError(f"{path}: {error}: copy terms.json from the helper's folder again") from None


def _token(file: ServerFile) -> str:
    path = Path(file.service.helper_token_file or "")
    try:
        return read_text(path).strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise OffbeatError(f"cannot read service.helper_token_file = {path}: {reason}") from None


def _check_terms(signed: SignedTerms, asked: Protection, path: str) -> None:
    """Raise ``OffbeatError`` for the first value of the terms that is not the run's."""
    terms = signed.terms
    if terms.noise_multiplier and signed.delta not in (None, asked.section.delta):
        raise OffbeatError(
            f"{path}: delta is {signed.delta:g}, but privacy.delta is {asked.section.delta:g}: set it to the helper's, "
            "so that both report the same ε"
        )
    for name in _AGREED:
        theirs, ours = getattr(terms, name), getattr(asked.section, name)
        if theirs != ours:
            raise OffbeatError(f"{path}: {name} is {theirs}, but privacy.{name} is {ours}: set it to the helper's")
    if terms.payload != asked.payload:
        raise OffbeatError(
            f"{path}: payload is {terms.payload}, but this run's clients send a {asked.payload}: enrol with "
            f'terms.payload = "{asked.payload}"'
        )
    if terms.bands != asked.section.bands:
        raise OffbeatError(
            f"{path}: bands is {terms.bands}, but this run's noise has {asked.section.bands}: enrol with the same "
            "mechanism and min_separation as in [privacy]"
        )
    if terms.length != asked.length:
        raise OffbeatError(
            f"{path}: length is {terms.length}, but the model has {asked.length} parameters: enrol with terms.length = "
            f"{asked.length}"
        )
    if terms.buffer < asked.places:
        raise OffbeatError(
            f"{path}: buffer is {terms.buffer}, but a sum has up to {asked.places} updates (those of a version, and "
            f"{asked.section.min_clients - 1} of a refused sum): enrol with terms.buffer = {asked.places}"
        )
