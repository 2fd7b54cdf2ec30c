"""The upload of a share, made of facts that the server sends just before."""

from offbeat_client.client_folder.outbox import Outbox, Pending
from offbeat_client.http.connection import Connection
from offbeat_client.http.retry import Attempts
from offbeat_client.http.upload import Delivery, upload
from offbeat_client.private_updates import PrivateUpdates
from offbeat_core.errors import OffbeatError
from offbeat_core.http.refusal import ServiceError, UnreachableError
from offbeat_core.messages import UploadState


def upload_share(
    connection: Connection, pending: Pending, private: PrivateUpdates, outbox: Outbox, *, check_in: bool
) -> Delivery:
    """Make an update's share if it has none, and send it until the receipt.

    A share that exists is sent unchanged, also after a crash. Only after ``stale-share``, when the helper would refuse
    it, the delta becomes another one.

    Raises:
        OffbeatError: The update is not a private one of this run, or the server's facts are refused.
    """
    if not private.owns(pending):
        raise OffbeatError(f"visit {pending.visit}: the update is not masked for this run: it stays here")
    attempts, may_have_begun = Attempts(connection.backoff), True
    while True:
        if pending.announcement is None:
            state = connection.ask("GET", f"/v1/uploads/{pending.visit}", UploadState)
            if state.receipt is not None:
                return Delivery(bool(state.receipt.counted), state.receipt.staleness, audit_head=state.audit_head)
            if state.share is None:
                attempts.failed(UnreachableError(f"{connection.url} does not have the helper's key and head now"))
                continue
            pending, may_have_begun = private.mask(pending, state.share), False
        try:
            body = outbox.body(pending.visit)
            return upload(connection, pending, body, ask_first=may_have_begun, check_in=check_in)
        except ServiceError as error:
            if error.kind != "stale-share":
                raise
            pending = outbox.drop_share(pending)
            attempts.failed(error)
