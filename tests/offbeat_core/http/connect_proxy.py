"""An HTTP proxy in a process of its own, as a hospital has one; the argument is the password of ``site``, if any.

It tunnels CONNECT and refuses everything else. Standard output has its port, then a line for each request.
"""

import asyncio
import base64
import sys
from contextlib import closing, suppress


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer), suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split(" ", 2)
        expected = base64.b64encode(f"site:{sys.argv[1]}".encode()).decode() if len(sys.argv) > 1 else ""
        may_pass = f"proxy-authorization: basic {expected}".lower() in head.lower() if expected else True
        status = "407 Proxy Authentication Required" if not may_pass else "200 OK"
        status = status if method == "CONNECT" else "403 Forbidden"
        print(f"{method} {target} {status}", flush=True)
        if status != "200 OK":
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            return
        host, _, port = target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copy(reader, back), copy(there, writer))


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
