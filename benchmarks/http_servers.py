"""The servers that ``http_stacks.py`` measures.

They are one handler behind several HTTP stacks, and without HTTP. ``python benchmarks/http_servers.py STACK FOLDER PORT
[CERTIFICATES]`` serves until it is killed. A stack is ``bare``, ``bare-sha256`` or ``bare-blake3``, which make a digest
of each upload, ``aiohttp``, or ``granian`` or ``uvicorn`` with a framework after a dash; ``:loop`` after it writes
uploads within the event loop, chunk by chunk. FOLDER has the file ``model``, CERTIFICATES has ``cert.pem`` and
``key.pem``.
"""

import asyncio
import ctypes
import os
import socket
import ssl
import struct
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from offbeat_core.digests import new_digest as new_digest_of

BATCH = 1 << 20
SYNC_FILE_RANGE_WRITE, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = 2, -1, -3
libc = ctypes.CDLL(None)
pool = ThreadPoolExecutor(8)


def write(fd: int, chunks: list[bytes], offset: int) -> None:
    """Write chunks, and let the kernel begin to bring them to the disk.

    So the sync at the end is short.
    """
    os.writev(fd, chunks)
    libc.sync_file_range(fd, ctypes.c_int64(offset), ctypes.c_int64(sum(map(len, chunks))), SYNC_FILE_RANGE_WRITE)


def finish(fd: int, path: str) -> None:
    """Bring the rest to the disk."""
    os.fdatasync(fd)
    os.close(fd)
    os.unlink(path)  # noqa: PTH108


async def store(chunks: AsyncIterator[bytes], folder: str, in_loop: bool) -> int:
    """Write a body to a file, in batches.

    A thread writes one batch while the next arrives.
    """
    loop = asyncio.get_running_loop()
    fd, path = tempfile.mkstemp(dir=folder)
    batch, size, total, writing = [], 0, 0, None
    async for chunk in chunks:
        total += len(chunk)
        if in_loop:
            os.write(fd, chunk)
        elif chunk:
            batch.append(chunk)
            size += len(chunk)
            if size >= BATCH:
                if writing is not None:
                    await writing
                writing, batch, size = loop.run_in_executor(pool, write, fd, batch, total - size), [], 0
    if writing is not None:
        await writing
    if batch:
        await loop.run_in_executor(pool, write, fd, batch, total - size)
    await loop.run_in_executor(pool, finish, fd, path)
    return total


class LogWriter:
    """One sync for all who wait."""

    def __init__(self, folder: str) -> None:
        self._waiting: SimpleQueue[asyncio.Future[None]] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._fd, _ = tempfile.mkstemp(dir=folder)
        threading.Thread(target=self._run, daemon=True).start()

    def commit(self) -> asyncio.Future[None]:
        """Return a future that is done when a line is on disk."""
        future = self._loop.create_future()
        self._waiting.put(future)
        return future

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            os.write(self._fd, b"x" * 200 * len(batch))
            os.fdatasync(self._fd)
            self._loop.call_soon_threadsafe(lambda batch=batch: [future.set_result(None) for future in batch])


async def answer(path: str, chunks: AsyncIterator[bytes], folder: str, in_loop: bool, log_writer: LogWriter) -> bytes:
    """Do what the path says with the body."""
    if path == "/upload":
        return b"%9d" % await store(chunks, folder, in_loop)
    size = sum([len(chunk) async for chunk in chunks])
    await (asyncio.sleep(10) if path == "/poll" else log_writer.commit())
    return b"%9d" % size


async def asgi_body(receive: Callable) -> AsyncIterator[bytes]:
    """Give the chunks of a body."""
    more = True
    while more:
        message = await receive()
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def serve(stack: str, folder: str, port: int, tls: str | None) -> None:
    """Serve until the process is killed."""
    stack, _, where = stack.partition(":")
    server, _, framework = stack.partition("-")
    rest = (folder, where == "loop", LogWriter(folder))
    model = Path(folder, "model")
    cert, key = (Path(tls, "cert.pem"), Path(tls, "key.pem")) if tls else (None, None)
    if server == "aiohttp":
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/model", lambda _: web.FileResponse(model))

        async def handle(request: web.Request) -> web.Response:
            return web.Response(body=await answer(request.path, request.content.iter_any(), *rest))

        app.router.add_put("/{path}", handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if tls else None
        if context is not None:
            context.load_cert_chain(cert, key)
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, backlog=1024).start()
        await asyncio.Event().wait()
    if framework:
        from starlette.requests import Request
        from starlette.responses import FileResponse, Response

        async def put(request: Request) -> Response:
            return Response(await answer(request.url.path, request.stream(), *rest))

        async def get(request: Request) -> Response:
            return FileResponse(model)

        if framework == "fastapi":
            from fastapi import FastAPI as App
        else:
            from starlette.applications import Starlette as App
        app = App()
        add = app.add_api_route if framework == "fastapi" else app.router.add_route
        add("/model", get, methods=["GET"])
        for path in ("/upload", "/small", "/poll"):
            add(path, put, methods=["PUT"])
    else:

        async def app(scope: dict, receive: Callable, send: Callable) -> None:
            is_file = scope["path"] == "/model"
            body = b"" if is_file else await answer(scope["path"], asgi_body(receive), *rest)
            length = b"%d" % (model.stat().st_size if is_file else len(body))
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
            last = {"type": "http.response.pathsend", "path": str(model)}
            await send(last if is_file else {"type": "http.response.body", "body": body})

    if server == "granian":
        from granian.constants import HTTPModes, Interfaces
        from granian.server.embed import Server

        options = {"interface": Interfaces.ASGINL, "http": HTTPModes.http1, "backlog": 2048, "log_enabled": False}
        await Server(app, port=port, websockets=False, ssl_cert=cert, ssl_key=key, **options).serve()
    else:
        import uvicorn

        options = {"http": "httptools", "log_level": "critical", "access_log": False, "backlog": 2048}
        await uvicorn.Server(uvicorn.Config(app, port=port, ssl_certfile=cert, ssl_keyfile=key, **options)).serve()


def serve_bare(folder: str, port: int, tls: str | None, digest: str) -> None:
    """Serve without HTTP until the process is killed.

    A request is a length, then that number of bytes; the length zero asks for a download.
    """
    new_digest = new_digest_of(digest) if digest else None  # pyright: ignore[reportArgumentType]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if tls else None
    if context is not None:
        context.load_cert_chain(Path(tls, "cert.pem"), Path(tls, "key.pem"))

    def connection(line: socket.socket) -> None:
        line = line if context is None else context.wrap_socket(line, server_side=True)
        view = memoryview(bytearray(BATCH))
        while head := line.recv(8, 0 if tls else socket.MSG_WAITALL):
            (left,) = struct.unpack("<Q", head)
            if not left:
                with Path(folder, "model").open("rb") as file:
                    if context is None:
                        line.sendfile(file)
                    while context is not None and (got := file.readinto(view)):
                        line.sendall(view[:got])
                continue
            fd, path = tempfile.mkstemp(dir=folder)
            hasher = None if new_digest is None else new_digest()
            while left and (got := line.recv_into(view, min(left, BATCH))):
                if hasher is not None:
                    hasher.update(view[:got])
                os.write(fd, view[:got])
                left -= got
            finish(fd, path)
            line.sendall(b"done")

    with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        while True:
            threading.Thread(target=connection, args=(listener.accept()[0],), daemon=True).start()


def main() -> None:
    """Serve what the command line says."""
    stack, folder, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tls = sys.argv[4] if len(sys.argv) > 4 else None
    # Chunks of 400 kB would be memory fresh from the kernel each time, which is slower than the copy into it.
    libc.mallopt(M_MMAP_THRESHOLD, 16 << 20)
    libc.mallopt(M_TRIM_THRESHOLD, 64 << 20)
    if stack.startswith("bare"):
        serve_bare(folder, port, tls, stack.partition("-")[2])
    elif stack.startswith("uvicorn"):
        import uvloop

        uvloop.run(serve(stack, folder, port, tls))
    else:
        asyncio.run(serve(stack, folder, port, tls))


if __name__ == "__main__":
    main()
