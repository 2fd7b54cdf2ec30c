"""The cost of HTTP, stack by stack.

Measured are uploads that end on disk, small requests, downloads and long polls. ``python benchmarks/http_stacks.py
[--tls] [--quick] [STACK …]``, in an environment that has granian, starlette, fastapi, uvicorn with httptools, uvloop
and aiohttp; a stack that does not start is skipped with a message. It prints a line of JSON for every row and then a
table. Each server is a process of its own on this machine (``http_servers.py``). A share is relative to the bare server
(blocking sockets, a thread for every connection, no HTTP), measured just before; figures are medians.
"""

import argparse
import json
import os
import resource
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STACKS = ["granian", "granian-starlette", "granian-starlette:loop", "granian-fastapi", "uvicorn-starlette", "aiohttp"]
BIG, SMALL = 40_000_000, 31_000
BODY = memoryview(os.urandom(1_000_000) * (BIG // 1_000_000))
Work = Callable[[socket.socket, memoryview], None]


class Server:
    """A server process, and lines to it."""

    def __init__(self, stack: str, folder: str, certificates: str | None) -> None:
        self.stack = stack
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._address = probe.getsockname()
        command = [
            sys.executable,
            str(Path(__file__).with_name("http_servers.py")),
            stack,
            folder,
            str(self._address[1]),
        ]
        self._process = subprocess.Popen([*command, *([certificates] if certificates else [])])
        self._context = ssl.create_default_context(cafile=f"{certificates}/cert.pem") if certificates else None
        while self._process.poll() is None:
            try:
                self.connect().close()
                return
            except ConnectionError:
                time.sleep(0.05)
        raise ChildProcessError(stack)

    def connect(self) -> socket.socket:
        """Return a new line."""
        line = socket.create_connection(self._address)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._context.wrap_socket(line, server_hostname="localhost") if self._context else line

    def cpu_seconds(self) -> float:
        """Return the processor time used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """Return the most memory it has had."""
        return int(Path(f"/proc/{self._process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

    def kill(self) -> None:
        """End it."""
        self._process.kill()


def request(method: str, path: str, length: int) -> bytes:
    """Return the head of a request."""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()


def take(line: socket.socket, scratch: memoryview) -> None:
    """Read one answer, to its last byte."""
    data = b""
    while b"\r\n\r\n" not in data and (got := line.recv(65536)):
        data += got
    head, _, body = data.partition(b"\r\n\r\n")
    if b" 200 " not in head:
        raise EOFError(head)
    skip(line, int(head.lower().split(b"content-length:")[1].split()[0]) - len(body), scratch)


def skip(line: socket.socket, left: int, scratch: memoryview) -> None:
    """Read so many bytes."""
    while left and (got := line.recv_into(scratch, min(left, len(scratch)))):
        left -= got
    if left:
        raise EOFError(left)


def exchange(bare: bool, path: str) -> Work:
    """Return what asks for one thing over a line and reads the answer."""
    size = {"/upload": BIG, "/small": SMALL, "/model": 0}[path]
    head = struct.pack("<Q", size) if bare else request("GET" if path == "/model" else "PUT", path, size)

    def work(line: socket.socket, scratch: memoryview) -> None:
        line.sendall(head)
        line.sendall(BODY[:size])
        skip(line, 4 if size else BIG, scratch) if bare else take(line, scratch)

    return work


def crowd(server: Server, connections: int, times: int, work: Work) -> tuple[float, float, float]:
    """Do the work ``times`` times on every connection.

    Return times per second, seconds of processor, and the 99th percentile.
    """
    lines, seconds = [server.connect() for _ in range(connections)], []
    tickets = iter(range(times * connections))

    def one(line: socket.socket) -> None:
        scratch = memoryview(bytearray(1 << 20))
        for _ in tickets:
            began = time.perf_counter()
            work(line, scratch)
            seconds.append(time.perf_counter() - began)

    threads = [threading.Thread(target=one, args=(line,)) for line in lines]
    cpu, began = server.cpu_seconds(), time.perf_counter()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    took = time.perf_counter() - began
    [line.close() for line in lines]
    if len(seconds) < times * connections:
        raise EOFError(f"{server.stack} failed")
    return len(seconds) / took, (server.cpu_seconds() - cpu) / len(seconds), statistics.quantiles(seconds, n=100)[98]


def polls(server: Server) -> dict[str, Any]:
    """Hold 1,000 long polls; return the share of a core while nothing happens."""
    lines, scratch = [server.connect() for _ in range(1000)], memoryview(bytearray(4096))
    [line.sendall(request("PUT", "/poll", 0)) for line in lines]
    time.sleep(1)
    cpu = server.cpu_seconds()
    time.sleep(5)
    row = {"what": "1000 polls", "cpu %": round(100 * (server.cpu_seconds() - cpu) / 5, 1)}
    [take(line, scratch) for line in lines]
    return row


def measure(server: Server, bare: Server, repeats: int) -> list[dict[str, Any]]:
    """Return the rows of one stack."""
    rows: list[dict[str, Any]] = []
    for path, connections, times in [("/upload", 8, 4), ("/upload", 32, 2), ("/model", 32, 2)]:
        crowd(server, connections, 1, exchange(False, path))
        results = []
        for _ in range(repeats):
            ours = [crowd(s, connections, times, exchange(s is bare, path)) for s in (bare, server)]
            results.append((ours[1][0] / ours[0][0], ours[1][0] * BIG / 1e9, 1000 * ours[1][1]))
        share, speed, cpu = (statistics.median(column) for column in zip(*results, strict=True))
        what = f"{connections} × {'upload' if path == '/upload' else 'download'}"
        row = {"what": what, "share": round(share, 2), "GB/s": round(speed, 2), "cpu ms": round(cpu)}
        rows.append({**row, "peak MB": round(server.peak_mb())})
    results = [crowd(server, 64, 50, exchange(False, "/small")) for _ in range(repeats)]
    rate, cpu, slow = (statistics.median(column) for column in zip(*results, strict=True))
    row = {"what": "64 × small", "a second": round(rate), "cpu ms": round(1000 * cpu, 2), "p99 ms": round(1000 * slow)}
    return [*rows, row, polls(server)]


def make_certificate(folder: Path) -> None:
    """Make ``cert.pem`` and ``key.pem`` for localhost."""
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*make.split(), *names], cwd=folder, check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stacks", nargs="*", default=STACKS)
    parser.add_argument("--tls", action="store_true", help="with a certificate made for it")
    parser.add_argument("--quick", action="store_true", help="once instead of five times")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    table = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model").write_bytes(BODY)
        if args.tls:
            make_certificate(Path(folder))
        for stack in args.stacks:
            servers = []
            try:
                servers += [Server(name, folder, folder if args.tls else None) for name in ("bare", stack)]
                for row in measure(servers[1], servers[0], 1 if args.quick else 5):
                    table.append({"stack": stack, "tls": args.tls, **row})
                    print(json.dumps(table[-1], ensure_ascii=False), flush=True)
            except (ChildProcessError, EOFError) as error:
                print(f"skipped: {error}", file=sys.stderr)
            [server.kill() for server in servers]
    for row in table:
        print(f"{row['stack']:24}{row['what']:16}", *(f"{k} {v:<8}" for k, v in list(row.items())[3:]))


if __name__ == "__main__":
    main()
