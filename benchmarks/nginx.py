"""The nginx of ``docs/concepts/operate.md`` in front of a server on this machine."""

import re
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/concepts/operate.md"
_FRAME = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    {server}
}}
"""


class Nginx:
    """nginx as the page configures it, but for addresses and TLS.

    Args:
        folder: For its own files.
        port: The server's.
        models: The folder of the server's models.
    """

    def __init__(self, folder: Path, port: int, models: Path) -> None:
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        [text] = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        server = re.sub(r" *ssl_certificate.*\n", "", text)
        for before, after in (("8443 ssl", f"127.0.0.1:{self.port}"), ("127.0.0.1:8080", f"127.0.0.1:{port}")):
            server = server.replace(before, after)
        server = server.replace("/srv/offbeat/server/models", str(models))
        (folder / "nginx.conf").write_text(f"user root;{_FRAME.format(folder=folder, server=server)}")
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        self._process = subprocess.Popen([program, "-p", str(folder), "-c", "nginx.conf"], stderr=subprocess.DEVNULL)
        while self._process.poll() is None:
            with suppress(ConnectionError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.02)
        raise ChildProcessError("nginx does not start")

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
