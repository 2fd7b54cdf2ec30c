"""The tokens in the files of the server's folder."""

from contextlib import suppress
from pathlib import Path

from offbeat.service.accounts.account import Kind
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.issued_tokens import IN_FOLDER
from offbeat.service.store.journal import Journal
from offbeat_client.files import write_durably


async def folder_token(folder: Path, accounts: Accounts, journal: Journal, kind: Kind) -> str:
    """Return the token of this kind in the folder's file.

    If the file lacks a valid token, a new one is made. All other tokens that the file has held are revoked.

    Args:
        folder: The server's folder.
        accounts: Check tokens.
        journal: The log; it is waited for.
        kind: Enrolment or admin.
    """
    path = folder / f"{kind}-token"
    token = _read(path)
    if token is not None and not accounts.is_valid(token, kind):
        token = None
    accounts.issued.keep_in_folder(kind, token)
    if token is None:
        token = accounts.issued.make(kind, name=IN_FOLDER)
        await journal.wait_until_durable()
        line = f"{token}\n".encode("ascii")
        write_durably(path, line, mode=0o600)
    await journal.wait_until_durable()
    return token


def _read(path: Path) -> str | None:
    with suppress(FileNotFoundError, ValueError):
        return path.read_text(encoding="ascii").strip()
    return None
