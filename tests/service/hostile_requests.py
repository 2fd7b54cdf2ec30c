"""Hostile requests, byte by byte: what somebody sends who wants to break a server."""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_METHODS = [
    *("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"),
    *("get", "G\x00T", "Ω"),
]
_VALUES = [
    *("", "5000", "-1", "0x7", "%00", "..%2f..%2fetc%2fpasswd", "../../etc/passwd", "NaN", "%ff%fe"),
    *("9" * 40, "a" * 300),
]
_TRICKS = [
    *["/v1/../../../etc/passwd", "//v1//status", "/v1/models/..%2f..%2fadmin-token", "/%2e%2e/%2e%2e/", "*", "/\x00"],
    *["http://elsewhere/v1/status", "/v1/status#x", "/v1/./status", "\\v1\\status"],
    *("/v1/models/latest/../../../admin-token", "/v1/status?" + "a=b&" * 500),
]
_JSON = [
    *(b"{}", b"[]", b"null", b"NaN", b"[" * 20_000, b'{"a":' * 5000, b'"' + b"x" * 60_000 + b'"', b"\xff\xfe{}"),
    *(b'{"uses": 1e999}', b'{"uses": ' + b"9" * 5000 + b"}", b'{"name": "\\ud800"}', b'{"wait_seconds": -1}'),
    *(b'{"a":1,"a":2}', b'{"examples": 1.5, "versions": -3}'),
]
_BOMB = gzip.compress(bytes(20_000_000))


@dataclass(frozen=True)
class Hostile:
    """A hostile connection.

    Attributes:
        kind: What is wrong with it.
        pieces: What to send, with pauses in between.
        is_cut: Whether the connection is reset without a wait for an answer.
    """

    kind: str
    pieces: Sequence[bytes]
    is_cut: bool = False


class Attacker:
    """Makes hostile requests from random numbers.

    Args:
        routes: Methods and paths, with names in braces, of the server.
        tokens: Tokens, valid or not.
        numbers: The random numbers.
    """

    def __init__(self, routes: Sequence[tuple[str, str]], tokens: Sequence[str], numbers: random.Random) -> None:
        self._routes = routes
        self._tokens = tokens
        self._numbers = numbers
        self.kinds: dict[str, Callable[[], Hostile]] = {
            name.removeprefix("_make_"): getattr(self, name) for name in dir(self) if name.startswith("_make_")
        }

    def next(self) -> Hostile:
        """Return the next one; all kinds are as frequent."""
        return self.kinds[self._numbers.choice(list(self.kinds))]()

    def _path(self) -> tuple[str, str]:
        """Return a method and a path of the server, with values that name nothing of an honest client's."""
        method, path = self._numbers.choice(self._routes)
        parts = [self._numbers.choice(_VALUES) if part.startswith("{") else part for part in path.split("/")]
        return method, "/".join(parts)

    def _head(self, method: str, path: str, *headers: str, token: bool = True) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: server", *headers]
        if token:
            lines.append(f"Authorization: Bearer {self._numbers.choice(self._tokens)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")

    def _json(self, method: str, path: str, body: bytes, *headers: str) -> bytes:
        length = f"Content-Length: {len(body)}"
        return self._head(method, path, "Content-Type: application/json", length, "Connection: close", *headers) + body

    def _make_random_bytes(self) -> Hostile:
        return Hostile("random bytes", [self._numbers.randbytes(self._numbers.randrange(1, 3000))])

    def _make_tls_garbage(self) -> Hostile:
        hello = bytes([22, 3, self._numbers.randrange(5)]) + self._numbers.randbytes(self._numbers.randrange(2, 600))
        return Hostile("TLS garbage", [hello])

    def _make_http2_preface(self) -> Hostile:
        return Hostile("HTTP/2 preface", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._numbers.randbytes(40)])

    def _make_websocket_upgrade(self) -> Hostile:
        upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA"]
        return Hostile("websocket", [self._head("GET", self._path()[1], *upgrade), self._numbers.randbytes(50)])

    def _make_method(self) -> Hostile:
        return Hostile("method", [self._head(self._numbers.choice(_METHODS), self._path()[1], "Connection: close")])

    def _make_path_trick(self) -> Hostile:
        method = self._numbers.choice(["GET", "POST", "DELETE"])
        return Hostile("path", [self._head(method, self._numbers.choice(_TRICKS), "Connection: close")])

    def _make_wrong_value(self) -> Hostile:
        method, path = self._path()
        return Hostile("value", [self._json(method, path, self._numbers.choice(_JSON))])

    def _make_huge_url(self) -> Hostile:
        size = self._numbers.choice([2_000, 9_000, 70_000, 300_000])
        return Hostile("huge URL", [self._head("GET", "/v1/" + "a" * size, "Connection: close")])

    def _make_header_flood(self) -> Hostile:
        flood = [f"X-{number}: {number}" for number in range(self._numbers.choice([90, 110, 3000]))]
        method, path = self._path()
        return Hostile("header flood", [self._head(method, path, *flood, "Connection: close")])

    def _make_large_header(self) -> Hostile:
        method, path = self._path()
        name = self._numbers.choice(
            ["Cookie", "Authorization", "Offbeat-Update", "Range", "Upload-Offset", "Content-Type", "Last-Event-ID"]
        )
        value = self._numbers.choice(
            ["x" * 100_000, "[" * 6000, "\x7f\x01", "bytes=" + "0-1," * 2000, "9" * 400, "é\xff"]
        )
        return Hostile("header", [self._head(method, path, f"{name}: {value}", "Connection: close")])

    def _make_bad_head(self) -> Hostile:
        line = self._numbers.choice(
            ["no colon", ": no name", " folded: x", "a\x00b: c", "Host: other", "Transfer-Encoding: x"]
        )
        return Hostile("head", [self._head(*self._path(), line, "Connection: close")])

    def _make_pipelined(self) -> Hostile:
        number = self._numbers.randrange(2, 20)
        heads = [
            self._json(*self._path(), b"{}") if self._numbers.random() < 0.5 else self._head(*self._path())
            for _ in range(number)
        ]
        return Hostile("pipelined", [b"".join(heads)])

    def _make_length_lie(self) -> Hostile:
        length = self._numbers.choice(["5", "-1", "+3", "1e3", "9" * 30, "0x10", "3, 4", str(2**63), ""])
        double = ["Content-Length: 2"] if self._numbers.random() < 0.3 else []
        return Hostile("length", [self._head("POST", self._path()[1], f"Content-Length: {length}", *double) + b"{}"])

    def _make_chunk_lie(self) -> Hostile:
        chunks = [
            b"2\r\n{}\r\n0\r\n\r\n",
            b"-1\r\n{}\r\n",
            b"FFFFFFFFFFFFFFFF\r\n{}",
            b"2\r\n{}{}{}\r\n",
            b"zz\r\n",
            b"2;" + b"x" * 9000,
            b"1\r\n{\r\n" * 500,
            b"2\r\n{}\r\n0\r\nX: " + b"y" * 9000 + b"\r\n\r\n",
            b"5\r\n{}",
        ]
        both = ["Content-Length: 2"] if self._numbers.random() < 0.3 else []
        head = self._head(self._numbers.choice(["POST", "PUT"]), self._path()[1], "Transfer-Encoding: chunked", *both)
        return Hostile("chunks", [head, self._numbers.choice(chunks)])

    def _make_gzip_bomb(self) -> Hostile:
        method, path = self._path()
        return Hostile(
            "gzip bomb", [self._json(method if method != "GET" else "POST", path, _BOMB, "Content-Encoding: gzip")]
        )

    def _make_wrong_upload(self) -> Hostile:
        header = self._numbers.choice([b"[" * 3000, b"{}", json.dumps({"bytes": 10**18, "sha256": "0" * 64}).encode()])
        headers = [
            f"Offbeat-Update: {header.decode()}",
            f"Upload-Offset: {self._numbers.choice(['0', '-1', '9' * 30])}",
        ]
        size = self._numbers.choice([0, 10, 70_000])
        head = self._head("PUT", "/v1/uploads/5000", *headers, f"Content-Length: {size}", "Connection: close")
        return Hostile("upload", [head, self._numbers.randbytes(size)])

    def _make_slow_loris(self) -> Hostile:
        data = self._head(*self._path(), *(f"X-{number}: a" for number in range(20)))
        return Hostile(
            "slow loris", [data[begin : begin + 40] for begin in range(0, self._numbers.randrange(40, 300), 40)]
        )

    def _make_cut(self) -> Hostile:
        data = self._json(*self._path(), self._numbers.choice(_JSON))
        return Hostile("cut", [data[: self._numbers.randrange(len(data))]], is_cut=True)

    def _make_stranger(self) -> Hostile:
        token = self._numbers.choice(
            ["Basic eDp5", "Bearer", "Bearer " + "x" * 20_000, "bearer obа_é", "Bearer oba_" + "A" * 43]
        )
        head = self._head(*self._path(), f"Authorization: {token}", "Connection: close", token=False)
        return Hostile("stranger", [head])
