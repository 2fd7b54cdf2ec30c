"""nginx as the balancer, with the configuration that the page on several servers gives."""

import re
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.server_process import free_port, until

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "several-servers.md"
_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")  # in Debian a package of its own
_FOLDERS = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin"
_MAIN = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
"""


@contextmanager
def nginx(folder: Path, ports: Sequence[int]) -> Generator[str]:
    """Run it in front of servers at two ports of this machine; the context has its URL."""
    program = shutil.which("nginx", path=_FOLDERS)
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    main = f"load_module {_MODULE};\n" * _MODULE.exists() + _MAIN.format(folder=folder)
    file = folder / "nginx.conf"
    file.write_text(main + stream(port, ports))
    process = subprocess.Popen([program, "-p", folder, "-c", file, "-e", folder / "nginx.log"])
    try:
        until((folder / "nginx.pid").exists)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def stream(port: int, ports: Sequence[int]) -> str:
    """Return the page's configuration, for other addresses."""
    found = re.findall(r"```nginx\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert len(found) == 1
    text, count = re.subn(r"listen 8443;", f"listen 127.0.0.1:{port};", found[0])
    assert count == 1
    for name, each in zip(("one", "two"), ports, strict=True):
        text, count = re.subn(rf"{name}\.example:8443", f"127.0.0.1:{each}", text)
        assert count == 1
    return text
