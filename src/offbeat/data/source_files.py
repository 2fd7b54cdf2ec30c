"""Where the files of a data set are: in the user's folder, the cache, a Debian package, or still to be downloaded."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from offbeat.data.dataset import MissingDataError
from offbeat.data.download import DownloadError, download
from offbeat.errors import OffbeatError


def own_folder() -> Path | None:
    """Return the folder that ``$OFFBEAT_DATA`` names, or None where it is unset or empty.

    Raises:
        OffbeatError: It is no folder.
    """
    own = os.environ.get("OFFBEAT_DATA")
    if not own:
        return None
    folder = Path(own).expanduser()
    if not folder.is_dir():
        raise OffbeatError(f"OFFBEAT_DATA is {own!r}, which is not a folder: set it to one, or unset it")
    return folder


def cache_folder() -> Path:
    """Return ``$OFFBEAT_CACHE``, or the user's folder for caches; it need not be there yet."""
    # Only here, because in a notebook its progress bars complain as soon as they are imported.
    import pooch

    return Path(os.environ.get("OFFBEAT_CACHE") or pooch.os_cache("offbeat")).expanduser()


@dataclass(frozen=True)
class Source:
    """The files of one data set.

    They are looked for in ``$OFFBEAT_DATA/NAME``, in ``$OFFBEAT_DATA``, in ``NAME`` in the cache and where Debian's
    package has them. If they are nowhere, they are downloaded into the cache.

    Attributes:
        name: The data set's name in a configuration, and of its folders.
        title: Its name in messages.
        base_url: Where the files are published, with a slash at the end.
        files: Their names and the hexadecimal SHA-256 of each as published.
        stand_in: A file that does instead of all of them. It is found, but not downloaded.
        debian_folder: Where the Debian package ``dataset-NAME`` has them, if there is one.
    """

    name: str
    title: str
    base_url: str
    files: Mapping[str, str]
    stand_in: str | None = None
    debian_folder: Path | None = None

    def find(self) -> tuple[Path, ...] | None:
        """Return the paths of the files, in order, or of the stand-in; None if they are nowhere. No file is read.

        Raises:
            OffbeatError: ``$OFFBEAT_DATA`` is no folder, or holds only part of the files.
        """
        root = own_folder()
        for folder in (root / self.name, root) if root else ():
            if paths := self._in(folder):
                return paths
            missing = [name for name in self.files if not (folder / name).is_file()]
            # Somebody who put some of the files there wants to know why they are not taken.
            if len(missing) < len(self.files):
                raise OffbeatError(f"{folder} holds only part of {self.title}: add {', '.join(missing)}")
        for folder in (cache_folder() / self.name, self.debian_folder):
            if folder and (paths := self._in(folder)):
                return paths
        return None

    def get(self) -> tuple[Path, ...]:
        """Return what ``find`` does, after a download if need be.

        Raises:
            OffbeatError: As for ``find``.
            MissingDataError: The files are nowhere, nor can they be downloaded.
        """
        if paths := self.find():
            return paths
        cache = cache_folder() / self.name
        try:
            download(self.base_url, self.files, cache)
        except DownloadError as error:
            own = os.environ.get("OFFBEAT_DATA")
            wanted = " and ".join(self.files) + (f", or {self.stand_in}" if self.stand_in else "")
            raise MissingDataError(
                f"{self.title} is not here{f', nor in OFFBEAT_DATA={own}' if own else ''}, and could not be downloaded "
                f"({error}): set OFFBEAT_DATA to a folder with {wanted}"
                f"{f', or apt install dataset-{self.name}' if self.debian_folder else ''}, or get online"
            ) from error
        return tuple(cache / name for name in self.files)

    def _in(self, folder: Path) -> tuple[Path, ...] | None:
        """Return the paths of the files, or of the stand-in, if the folder has them."""
        for names in (tuple(self.files), (self.stand_in,)):
            paths = tuple(folder / name for name in names if name)
            if paths and all(path.is_file() for path in paths):
                return paths
        return None


@dataclass(frozen=True)
class OwnCopy(Source):
    """Files of which nobody publishes a checksum: they are looked for, but never downloaded.

    Attributes:
        how: How people get them, in words that follow "… is not here: " and come before "set OFFBEAT_DATA to …".
    """

    how: str = field(kw_only=True)

    def get(self) -> tuple[Path, ...]:
        """Return what ``find`` does.

        Raises:
            OffbeatError: As for ``find``.
            MissingDataError: The files are nowhere; says how to get them.
        """
        paths = self.find()
        if paths is None:
            raise MissingDataError(
                f"{self.title} is not here: {self.how} and set OFFBEAT_DATA to the folder with "
                f"{'it' if len(self.files) == 1 else 'them'}"
            )
        return paths
