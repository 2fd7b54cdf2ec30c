"""Opening of a store of blobs by its URL."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.blobs import Blobs
from offbeat.service.blobs.folder_blobs import FolderBlobs
from offbeat.service.blobs.local_copies import LocalCopies

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""The variables of the environment for each scheme of URLs; obstore knows others, such as those of roles."""


def open_blobs(url: str | None, folder: Path, cache_bytes: int, request_seconds: float = 30) -> Blobs:
    """Return the blobs at a URL; no request is sent yet.

    Args:
        url: ``s3://BUCKET/PREFIX``, ``gs://``, ``az://CONTAINER/PREFIX`` or ``file:///FOLDER``; None: ``folder``.
            Credentials, region and endpoint come from the environment, as the store's own tools take them
            (``AWS_ENDPOINT_URL``); plain HTTP needs ``AWS_ALLOW_HTTP=true``.
        folder: For objects: a folder of this process alone, whose ``.cache`` is emptied and gets the local copies.
        cache_bytes: The bound of the local copies.
        request_seconds: How long a small request may take; see ``ObjectBlobs``.

    Raises:
        OffbeatError: It is not the URL of a store, or the environment lacks something.
    """
    if url is None:
        return FolderBlobs(folder)
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return FolderBlobs(Path(unquote(parts.path)))
    if parts.scheme not in CREDENTIALS or not parts.netloc:
        allowed = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, file:///FOLDER"
        raise OffbeatError(f"store.blobs cannot be {url!r}: allowed are {allowed}")
    if "@" in parts.netloc or parts.query or parts.fragment:  # the URL may hold a secret, so it is not shown
        variables = CREDENTIALS[parts.scheme]
        raise OffbeatError(f"store.blobs must be a bucket and a prefix only: set {variables} in the environment")
    return _object_blobs(url, parts.scheme, folder / ".cache", cache_bytes, request_seconds)


def _object_blobs(url: str, scheme: str, cache: Path, cache_bytes: int, request_seconds: float) -> Blobs:
    try:
        from obstore.exceptions import BaseError

        from offbeat.service.blobs.object_blobs import ObjectBlobs
        from offbeat.service.blobs.object_store import is_http_allowed, reason
    except ModuleNotFoundError:
        raise OffbeatError("store.blobs needs obstore: pip install 'offbeat[cluster]'") from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    if scheme == "s3" and endpoint.startswith("http:") and not is_http_allowed(scheme):
        raise OffbeatError(
            "AWS_ENDPOINT_URL is plain HTTP, which others can read: use https, or set AWS_ALLOW_HTTP=true"
        )
    try:
        return ObjectBlobs(url, LocalCopies(cache, cache_bytes), request_seconds)
    except (BaseError, ValueError) as error:
        raise OffbeatError(f"cannot use {url}: {reason(error)}; set {CREDENTIALS[scheme]} in the environment") from None
    except OSError as error:
        raise OffbeatError(f"cannot make {cache}: {error.strerror}") from None
