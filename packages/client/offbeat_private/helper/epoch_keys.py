"""The helper's HPKE keys: a file for each epoch, erased after the next one."""

from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_core.files import write_durably
from offbeat_private.helper.folder import erase_durably


class EpochKeys:
    """The keys of the current and the last epoch, in a folder that exists."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, epoch: int) -> None:
        """Make the key of an epoch unless it exists; erase those before the last epoch's."""
        if not self._path(epoch).exists():
            write_durably(self._path(epoch), X25519PrivateKey.generate().private_bytes_raw(), mode=0o600)
        for path in list(self._before(epoch - 1)):
            erase_durably(path)

    def read(self, epoch: int) -> X25519PrivateKey:
        """Return the key of an epoch."""
        return X25519PrivateKey.from_private_bytes(self._path(epoch).read_bytes())

    def _path(self, epoch: int) -> Path:
        return self._folder / str(epoch)

    def _before(self, epoch: int) -> Iterator[Path]:
        return (path for path in self._folder.iterdir() if path.name.isdecimal() and int(path.name) < epoch)
