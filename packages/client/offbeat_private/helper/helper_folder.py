"""The helper's folder.

```
helper.lock            held by the one process that uses the folder
helper.sqlite          run, roster, batches, participations, digests of models
signing-key            the helper's Ed25519 key
terms.json             the signed terms, for server and clients
tls/                   certificates
run-…/noise-secret     256 bits for this run alone, so that a row of noise is never used twice
run-…/keys/3           the HPKE key of epoch 3
run-…/answers/250      the answer to batch 250
```
"""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError
from offbeat_core.files import files_in, remove_durably, sync_file, sync_folder, write_durably
from offbeat_private.masks.signing_key import signing_key


class HelperFolder:
    """The paths in a helper's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.signing_key = path / "signing-key"
        self.terms = path / "terms.json"
        self.tls = path / "tls"

    def make(self) -> None:
        """Make the folder if it does not exist; only its owner may look into it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
        except OSError as error:
            raise OffbeatError(f"cannot make the folder {self.path}: {error.strerror}") from None

    def read_signing_key(self, public_key: bytes) -> Ed25519PrivateKey:
        """Return the helper's key, whose public half is known."""
        if self.signing_key.exists():
            key = signing_key(self.signing_key)
            if key.public_key().public_bytes_raw() == public_key:
                return key
        raise OffbeatError(f"{self.signing_key} is missing or another one: put the right file back")

    @contextmanager
    def lock(self) -> Generator[None]:
        """Use the folder, which exists, alone within the context."""
        try:
            lock = FileLock(self.path / "helper.lock")
            lock.acquire(timeout=0)
        except Timeout:
            raise OffbeatError(f"{self.path} is in use by another helper: stop it first") from None
        except OSError as error:
            raise OffbeatError(f"cannot use the folder {self.path}: {error.strerror}") from None
        try:
            yield
        finally:
            lock.release()

    def run(self, run: bytes) -> "RunFolder":
        """Return the paths of a run."""
        return RunFolder(self.path / f"run-{run.hex()}")

    def erase_runs(self, *, but: bytes) -> None:
        """Erase the secrets and answers of all other runs."""
        for path in files_in(self.path, "run-*"):
            if path != self.run(but).path:
                RunFolder(path).erase()


class RunFolder:
    """The paths in a run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.noise_secret = path / "noise-secret"
        self.keys = path / "keys"
        self.answers = path / "answers"

    def make(self, noise_secret: bytes) -> None:
        """Make the folder of a new run, on disk."""
        for path in (self.path, self.keys, self.answers):
            path.mkdir(mode=0o700)
        sync_folder(self.path.parent)
        write_durably(self.noise_secret, noise_secret, mode=0o600)

    def erase(self) -> None:
        """Erase secrets and answers."""
        for path in (self.noise_secret, *files_in(self.keys, "*")):
            erase_durably(path)
        shutil.rmtree(self.path)


def erase_durably(path: Path) -> None:
    """Overwrite and delete a secret's file, if it exists.

    The disk itself may keep old blocks.
    """
    if not path.exists():
        return
    with path.open("rb+") as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))
        file.flush()
        sync_file(file.fileno())
    remove_durably(path)


class EpochKeys:
    """The keys of the current and the last epoch, in a folder that exists."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, epoch: int) -> None:
        """Make the key of an epoch unless it exists; erase those before the last epoch's."""
        if not self._path(epoch).exists():
            write_durably(self._path(epoch), X25519PrivateKey.generate().private_bytes_raw(), mode=0o600)
        for path in list(self._folder.iterdir()):
            if path.name.isdecimal() and int(path.name) < epoch - 1:
                erase_durably(path)

    def read(self, epoch: int) -> X25519PrivateKey:
        """Return the key of an epoch."""
        return X25519PrivateKey.from_private_bytes(self._path(epoch).read_bytes())

    def _path(self, epoch: int) -> Path:
        return self._folder / str(epoch)
