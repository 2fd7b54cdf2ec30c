"""Updates of a client that has terms: only shares leave it."""

import base64
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from offbeat_client.client_folder.identity import ClientFolder
from offbeat_client.client_folder.outbox import Delta, Outbox, Pending
from offbeat_client.client_folder.private_record import (
    PrivateRecord,
    PrivateRecordFile,
    TrainedModels,
    has_private_record,
)
from offbeat_client.local_update import check_fitted, result_vector
from offbeat_client.private_visits import check_delta, check_model, check_visit
from offbeat_client.visit import Visit
from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_text
from offbeat_core.messages import PrivacyMessage, ShareMessage
from offbeat_core.model_file import model_digest, read_model
from offbeat_private.masks.helper_facts import EpochKey, Head, verify_epoch_key
from offbeat_private.masks.share import make_share
from offbeat_private.masks.signing_key import public_text, signing_key
from offbeat_private.signed_terms import Terms, verify

KEY_FILE = "signing-key"
"""The name of the client's Ed25519 key in its folder."""

_log = logging.getLogger(__name__)


class PrivateUpdates:
    """Makes the shares of one client in one run.

    Args:
        terms: The run's terms.
        key: The client's key, which the helper's roster lists.
        folder: The client's folder.
        outbox: The folder's outbox.
    """

    def __init__(self, terms: Terms, key: Ed25519PrivateKey, folder: Path, outbox: Outbox) -> None:
        self._terms = terms
        self._digest = terms.digest
        self._key = key
        self._outbox = outbox
        self._file = PrivateRecordFile(folder, self._digest)
        seen = self._file.read()
        self._file.write(seen)  # from now on the folder's client needs terms
        self._models = TrainedModels(folder, self._digest)
        if self._models.latest < seen.start_version:
            raise OffbeatError(
                f"{folder} has lost models-{self._digest.hex()[:8]}….txt or lines of it: put it back, or have a new "
                "key enrolled in another folder"
            )

    def owns(self, pending: Pending) -> bool:
        """Return whether an update belongs to this run, and so may leave as a share."""
        return pending.delta is not None and pending.delta["terms"] == self._digest.hex()

    def check_visit(self, visit: Visit, privacy: PrivacyMessage | None) -> None:
        """Raise ``OffbeatError`` if the visit is not one of a run with these terms."""
        check_visit(visit, privacy, self._terms, self._file.read())

    def starts_later(self, visit: Visit) -> bool:
        """Return whether a visit starts from a later version than every earlier share.

        From the same version its delta could be the same, under another mask.
        """
        return visit.version > self._models.latest

    def check_model(self, visit: Visit, model: Path) -> str:
        """Return the digest of a visit's model, in hexadecimal digits.

        Raises ``OffbeatError`` if the client does not train from it.
        """
        start = read_model(model, visit.length)
        digest = model_digest(start).hex()
        check_model(start, visit.version, self._models.version_of(digest))
        seen = self._file.read()
        if seen.seed is None:
            self._file.write(replace(seen, seed=visit.seed))
        return digest

    def put(self, visit: Visit, model: Path, digest: str, result: Any) -> Pending:
        """Keep the delta of a training result; the share will be made from it."""
        start = read_model(model, visit.length)  # again, since training may have changed the arrays in place
        fitted = check_fitted(result, start, visit)
        vector = result_vector("delta", start, fitted.model)
        check_delta(vector, visit.number, self._terms)
        if not np.isfinite(vector).all():
            _log.warning("visit %d: training diverged; the update counts as zeros", visit.number)
        delta = Delta(terms=self._digest.hex(), divisor=self._terms.divisor(visit.plan), model=digest)
        if self._terms.payload == "difference":
            delta["since"] = visit.since
        return self._outbox.put_delta(visit, vector, delta, fitted.state)

    def mask(self, pending: Pending, facts: ShareMessage) -> Pending:
        """Make the share of an update; it is on disk once this returns.

        Raises:
            OffbeatError: The facts are not the helper's, or not acceptable; nothing has changed.
        """
        delta = pending.delta
        assert delta is not None
        since = delta.get("since")
        previous = self._outbox.memory(since, self._terms.length, np.int32)
        head, head_signature = Head(facts.head.number, bytes.fromhex(facts.head.digest)), facts.head.signature
        try:
            epoch_key = self._epoch_key(facts)
            head.check_signature(bytes.fromhex(head_signature), self._terms.helper_key, self._digest)
            self._check_not_older(head, epoch_key.epoch)
            share = make_share(
                self._outbox.delta(pending),
                divisor=delta["divisor"],
                scale=facts.scale,
                terms=self._terms,
                visit=pending.visit,
                start_version=pending.version,
                version=facts.version,
                model=bytes.fromhex(delta["model"]),
                head=head,
                head_signature=bytes.fromhex(head_signature),
                epoch_key=epoch_key,
                signing_key=self._key,
                previous=previous,
            )
        except ValueError as error:
            raise OffbeatError(
                f"visit {pending.visit}: cannot mask the update with the server's values: {error}: ask its operator"
            ) from None
        self._models.keep(pending.version, delta["model"])
        seen = self._file.read()
        self._file.write(
            PrivateRecord(
                pending.visit, pending.version, head.number, head.digest.hex(), epoch_key.epoch, seed=seen.seed
            )
        )
        announcement = {
            "version": pending.version,
            "bytes": share.masked.nbytes,
            "sha256": share.digest.hex(),
            # The server must know of a difference to nothing.
            "since": None if previous is None else since,
            "salt": share.salt.hex(),
            "share": base64.b64encode(share.record).decode(),
        }
        return self._outbox.put_share(pending, share.masked, announcement, share.quantised)

    def _epoch_key(self, facts: ShareMessage) -> EpochKey:
        epoch = facts.epoch
        signed = epoch.number.to_bytes(4, "big") + bytes.fromhex(epoch.public_key + epoch.signature)
        return verify_epoch_key(signed, self._terms)

    def _check_not_older(self, head: Head, epoch: int) -> None:
        seen = self._file.read()
        if epoch < seen.epoch:
            raise OffbeatError(
                f"the server passes on the helper's key of epoch {epoch}, but this client has seen that of epoch "
                f"{seen.epoch}: server or helper was restored from an old copy, so ask their operators"
            )
        if head.number < seen.head_number or (head.number == seen.head_number and head.digest.hex() != seen.head):
            raise OffbeatError(
                f"the server passes on the helper's head {head.number} ({head.digest.hex()[:8]}…), but this client has "
                f"seen head {seen.head_number} ({seen.head[:8]}…): server or helper was restored from an old copy, so "
                "ask their operators"
            )


def public_key(folder: Path) -> str:
    """Return the public key of a client's folder as text.

    If the folder has no key, it is made.
    """
    path = folder / KEY_FILE
    if not path.exists():
        with ClientFolder(folder):
            signing_key(path)
    return public_text(signing_key(path))


def private_updates(folder: Path, terms: Path | None, key: Path | None, outbox: Outbox) -> PrivateUpdates | None:
    """Return what makes a client's shares; None for a client without terms.

    Args:
        folder: The client's folder.
        terms: The file ``terms.json``.
        key: The client's key; by default it is in its folder.
        outbox: The folder's outbox.

    Raises:
        OffbeatError: A file is missing or wrong, or the folder's client has had terms before.
    """
    if terms is None:
        if key is not None:
            raise OffbeatError("--privacy-key is for a private run: give --terms, too")
        if has_private_record(folder):
            raise OffbeatError(f"the client in {folder} has joined with --terms before: give them, or another folder")
        return None
    try:
        verified = verify(read_text(terms).encode()).terms
    except OSError as error:
        raise OffbeatError(f"cannot read the terms in {terms}: {error.strerror}") from None
    except ValueError as error:
        raise OffbeatError(f"{terms}: {error}: ask the helper's operator for the file") from None
    key = key or folder / KEY_FILE
    if not key.exists():
        raise OffbeatError(
            f"there is no key {key}: make one with offbeat client key --folder {folder}, and give the text that it "
            "prints to the helper's operator"
        )
    _log.info("fingerprint of helper and terms: %s; compare it with the helper's operator", verified.fingerprint)
    return PrivateUpdates(verified, signing_key(key), folder, outbox)
