"""The versions that clients have downloaded.

A version has the same bytes for every reader, before and after a kill.
"""

import hashlib
import re

from tests.e2e.http_message import Answer, header

_MOST_KEPT = 8  # versions of which all bytes are kept; clients read the newest ones


class ReadHistory:
    """Compares downloads, whole and in part, by version.

    Attributes:
        digests: The SHA-256 of the parameters of each version that was read whole, by version.
        parts: How many parts were compared with the whole.
        problems: Downloads that contradict each other.
    """

    def __init__(self) -> None:
        self.digests: dict[int, str] = {}
        self.parts = 0
        self.problems: list[str] = []
        self._whole: dict[int, bytes] = {}  # by version, the last ones
        self._waiting: dict[int, list[tuple[int, bytes]]] = {}  # by version, parts of versions not read whole yet

    def add(self, version: int, answer: Answer) -> None:
        """Compare a download with those before it."""
        etag = header(answer.data, "ETag")
        if etag is None or answer.status not in (200, 206):
            self.problems.append(f"download: {answer.status} with ETag {etag}")
        elif answer.status == 200:
            if etag != f'"{hashlib.sha256(answer.body).hexdigest()}"':
                self.problems.append(f"download: the ETag of version {version} is not its digest")
            self._add_whole(version, answer.body)
        else:
            found = re.match(r"bytes (\d+)-", header(answer.data, "Content-Range") or "")
            assert found is not None
            self._add_part(version, int(found[1]), answer.body)

    def _add_whole(self, version: int, body: bytes) -> None:
        # A safetensors file begins with the length of its header; the parameters follow.
        begin = 8 + int.from_bytes(body[:8], "little")
        digest = hashlib.sha256(body[begin:]).hexdigest()
        if self.digests.setdefault(version, digest) != digest:
            self.problems.append(f"download: version {version} has other parameters than before")
        if self._whole.setdefault(version, body) != body:
            self.problems.append(f"download: version {version} has other bytes than before")
        while len(self._whole) > _MOST_KEPT:
            del self._whole[next(iter(self._whole))]
        for offset, part in self._waiting.pop(version, ()):
            self._add_part(version, offset, part)

    def _add_part(self, version: int, begin: int, part: bytes) -> None:
        whole = self._whole.get(version)
        if whole is None:
            self._waiting.setdefault(version, []).append((begin, part))
            return
        self.parts += 1
        if whole[begin : begin + len(part)] != part:
            self.problems.append(f"download: version {version} has other bytes than before from {begin} on")
