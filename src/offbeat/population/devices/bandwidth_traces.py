"""Traces of measured bandwidth, from files.

``load_traces`` finds the files and limits their sizes; ``parse_pensieve`` parses the content of one. A parser for
another format has the same signature, and ``load_traces`` chooses between them.
"""

import gzip
import io
import math
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

_BYTES_PER_MEGABIT = 125_000.0
_SHORTEST_SECONDS = 1e-3

_LARGEST_FILE = 16 * 2**20
_LARGEST_TOTAL = 256 * 2**20
_MOST_FILES = 10_000


@dataclass(frozen=True, eq=False)
class Trace:
    """Bandwidth that is constant in each of M segments; the trace repeats without end.

    Attributes:
        name: File of the trace.
        seconds: ``(M + 1,)`` float64, the limits of the segments, rising from 0.
        bytes_per_second: ``(M,)`` float64, the bandwidth in each segment, ≥ 0.
    """

    name: str
    seconds: NDArray[np.float64]
    bytes_per_second: NDArray[np.float64]


def load_traces(path: str | Path) -> list[Trace]:
    """Return the traces of a file, a folder, or a .tar, .tar.gz or .tgz archive.

    Folders are searched recursively, in the order of the names. Files whose name begins with a dot are skipped; all
    others must be traces. The limits are 10,000 files, 16 MiB each and 256 MiB together.

    Raises:
        OffbeatError: A file cannot be read or is not a trace, there are none, or they are too large or too many.
    """
    path = Path(path)
    try:
        if path.is_dir():
            files = _folder_files(path)
        elif path.name.endswith((".tar", ".tar.gz", ".tgz")):
            files = _archive_files(path)
        else:
            files = [(str(path), _read(path, _LARGEST_FILE))]
        traces = [parse_pensieve(name, content) for name, content in _check_limits(path, files)]
    # The exceptions of the gzip and tar modules for broken files.
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise OffbeatError(f"cannot read {getattr(error, 'filename', None) or path}: {reason}") from error
    if not traces:
        raise OffbeatError(f"{path} does not hold any trace file")
    return traces


def _folder_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file."""
    for path in sorted(folder.rglob("*"), key=lambda path: path.as_posix()):
        if path.is_file() and not path.name.startswith("."):
            yield str(path), _read(path, _LARGEST_FILE)


def _archive_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file, without unpacking to disk."""
    # Decompressed up to the limit only: an archive's headers may claim any size.
    content = _read(path, _LARGEST_TOTAL)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = [member for member in archive if member.isfile()]
        for member in sorted(members, key=lambda member: member.name):
            file = archive.extractfile(member)
            if file is not None and not PurePosixPath(member.name).name.startswith("."):
                yield f"{path}: {member.name!r}", file.read(_LARGEST_FILE + 1)


def _read(path: Path, limit: int) -> bytes:
    """Return a file's content, decompressed if it is a compressed archive."""
    with gzip.open(path) if path.name.endswith((".tar.gz", ".tgz")) else path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OffbeatError(f"{path} is larger than {limit:,} bytes: give fewer or shorter traces")
    return content


def _check_limits(path: Path, files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield the files, or raise an error as soon as they are too many or too large."""
    total = 0
    for count, (name, content) in enumerate(files, start=1):
        total += len(content)
        if len(content) > _LARGEST_FILE:
            raise OffbeatError(f"{name} is larger than {_LARGEST_FILE:,} bytes: give a shorter trace")
        if count > _MOST_FILES or total > _LARGEST_TOTAL:
            raise OffbeatError(
                f"{path} holds more than {_MOST_FILES:,} files or {_LARGEST_TOTAL:,} bytes: give fewer traces"
            )
        yield name, content


def parse_pensieve(name: str, content: bytes) -> Trace:
    """Return the trace in a file of rows "seconds Mbit/s", separated by white space.

    A row's bandwidth holds from the time of the row before until its own time; the first row only starts the trace.
    This is the format of the "cooked" traces of Pensieve (Mao et al., "Neural adaptive video streaming with Pensieve",
    SIGCOMM 2017, https://github.com/hongzimao/pensieve). Errors name the file and the line.
    """
    rows: list[tuple[float, float]] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        quoted = f"{name}, line {number}: {line[:80].decode(errors='replace')!r}"
        try:
            second, megabits = map(float, line.split())
        except ValueError:
            raise OffbeatError(f"{quoted} is not a row of seconds and Mbit/s, separated by white space") from None
        if not (math.isfinite(second) and 0 <= megabits < math.inf):
            raise OffbeatError(f"{quoted} is not finite, or its bandwidth is below 0")
        # Compared from the first row on, like the trace: otherwise two close times could become equal.
        if rows and second - rows[0][0] <= rows[-1][0] - rows[0][0]:
            raise OffbeatError(f"{quoted} is not after the row before it: the seconds must rise")
        rows.append((second, megabits))
    if len(rows) < 2:
        raise OffbeatError(f"{name} has too few rows: a trace needs at least two, of seconds and Mbit/s")
    table = np.array(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        seconds = table[:, 0] - table[0, 0]
        rates = table[1:, 1] * _BYTES_PER_MEGABIT
    return trace_within_limits(name, seconds, rates)


def trace_within_limits(name: str, seconds: NDArray[np.float64], rates: NDArray[np.float64]) -> Trace:
    """Return a trace, or raise ``OffbeatError`` if its values are out of range."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(rates @ np.diff(seconds))
    # Keeps quotients by the trace's length and content far from overflow.
    if not (seconds[-1] >= _SHORTEST_SECONDS and 1.0 <= total < math.inf):
        raise OffbeatError(
            f"{name} carries {total:g} bytes in {seconds[-1]:g} seconds: it must last at least 1 ms and carry at "
            "least 1 byte and a finite number"
        )
    return Trace(name, seconds, rates)
