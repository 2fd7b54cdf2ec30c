"""The keys of ``[store]``, also in the server's folder, where commands read them."""

from pathlib import Path

from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably
from offbeat_core.tables.section import Section
from pydantic import ValidationError, model_validator

FILE = "store.json"
"""The file in a server's folder."""


class StoreSettings(Section):
    """The keys of ``[store]``."""

    log: str
    """The log's database, `postgresql://USER@HOST/DATABASE`; its password comes from PGPASSWORD or a password file."""
    blobs: str
    """Where large updates and checkpoints lie: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, or
    `file:///FOLDER` for a folder that all servers share. Credentials come from the environment."""
    presigned: bool = False
    """Whether clients download models from the bucket itself, by presigned URLs; they must be able to reach it."""

    @model_validator(mode="after")
    def _check_log(self) -> "StoreSettings":
        if not self.log.startswith("postgresql://"):
            raise ValueError("log must begin with postgresql://; leave [store] out for a log in service.folder")
        if ":" in self.log.removeprefix("postgresql://").rpartition("@")[0]:
            raise ValueError("log must not hold a password: put it into PGPASSWORD, or a file that PGPASSFILE names")
        if self.presigned and self.blobs.startswith("file:"):
            raise ValueError("presigned needs blobs in s3://, gs:// or az://: leave it out for a folder")
        return self


def note_shared_store(folder: Path, settings: StoreSettings | None) -> None:
    """Write into a server's folder where its log is, for commands."""
    if settings is not None:
        write_durably(folder / FILE, settings.model_dump_json().encode())
    else:
        (folder / FILE).unlink(missing_ok=True)


def noted_shared_store(folder: Path) -> StoreSettings | None:
    """Return where the log of the server of a folder is; None if it is in the folder."""
    try:
        return StoreSettings.model_validate_json((folder / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise OffbeatError(f"cannot read {folder / FILE}: start the server again") from error
