"""Enrolment, the renewal of the token, and the declaration of examples."""

import logging
import re
import time
from dataclasses import replace

from offbeat_client.client_folder.identity import ClientFolder, Identity
from offbeat_client.http.connection import Connection
from offbeat_core.errors import OffbeatError
from offbeat_core.messages import Answer, Declaration, Enrolled, Enrolment, NewToken
from offbeat_core.name_check import LARGEST_NAME, check_name

_FIRST_ATTEMPTS = 6  # until the first answer the URL may be wrong

_log = logging.getLogger(__name__)


def identify(connection: Connection, folder: ClientFolder, enrolment_token: str | None, name: str | None) -> Identity:
    """Return the client's identity; enrol with the enrolment token if it has none.

    Afterwards the connection uses the client's token.
    """
    identity = folder.identity(connection.url)
    if identity is None:
        if enrolment_token is None:
            raise OffbeatError(f"no client has enrolled in {folder.path}: give an enrolment token with --token-file")
        enrolment_token = enrolment_token.strip().strip("\ufeff").strip()  # of a file that an editor on Windows wrote
        if not re.fullmatch("[!-~]+", enrolment_token):
            raise OffbeatError("the enrolment token is empty or has characters that no token has: copy it again")
        if name is not None:
            _check_name(name)
        connection.token = enrolment_token
        request = Enrolment(token=folder.first_token(), name=name or "")
        backoff = connection.backoff.ending(_FIRST_ATTEMPTS)
        enrolled = connection.ask("POST", "/v1/enrol", Enrolled, request, backoff=backoff)
        identity = _keep(folder, Identity(connection.url, enrolled.client, "", has_runs=enrolled.has_runs), enrolled)
        _log.info("enrolled as client %d", enrolled.client)
    connection.token = identity.token
    return identity


def _check_name(name: str) -> None:
    if len(name) > LARGEST_NAME:
        raise OffbeatError(f"the client's name has {len(name)} characters; it may have at most {LARGEST_NAME}")
    try:
        check_name(name)
    except ValueError as error:
        raise OffbeatError(f"the client's name cannot be used: {error}") from None


def renew(connection: Connection, folder: ClientFolder, identity: Identity) -> Identity:
    """Return the identity; its token is renewed once half the token's life is over."""
    if identity.renew_at is None or time.time() < identity.renew_at:
        return identity
    answer = connection.ask("POST", "/v1/token", NewToken)
    identity = _keep(folder, identity, answer)
    # The old token ends when the new one is first used, which is on disk by now.
    connection.token = identity.token
    return identity


def declare(connection: Connection, folder: ClientFolder, identity: Identity, examples: int | None) -> Identity:
    """Declare the client's number of examples, unless the server knows it.

    The server refuses a number that differs from the first one.
    """
    if examples is None or identity.examples == examples:
        return identity
    connection.ask("POST", "/v1/examples", Answer, Declaration(examples=examples))
    declared = replace(identity, examples=examples)
    folder.keep_identity(declared)
    return declared


def _keep(folder: ClientFolder, identity: Identity, answer: NewToken) -> Identity:
    """Return the identity with its new token, which is on disk."""
    expires = answer.expires_seconds
    renew_at = None if expires is None else time.time() + expires / 2
    identity = replace(identity, token=answer.token, renew_at=renew_at)
    folder.keep_identity(identity)
    return identity
