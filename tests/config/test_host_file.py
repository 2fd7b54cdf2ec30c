"""Files of a server of several runs, and of its runs."""

from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config import host_file
from offbeat.config.host_file import HostFile, is_host_file, parse_run

MODEL = "from torch import nn\n\n\ndef net():\n    return nn.Linear(3, 2)\n"
RUN = """
[service]
clients = 5
seed = 3
[model]
name = "model.py:net"
[local]
steps = 2
batch_size = 4
lr = 0.1
[algorithm]
algorithm = "fedbuff"
buffer_size = 2
concurrency = 3
"""
LOGIN = "[login]\nissuer = 'https://id.example'\nclient_id = 'a'\nroles = { admin = ['a'] }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


@pytest.fixture
def host(folder: Path) -> HostFile:
    (folder / "server.toml").write_text("[service]\nfolder = 'server'\nport = 9000\ntls = false\n")
    return host_file.load(folder / "server.toml")


def test_a_runs_file_is_that_of_a_server_at_the_servers_place(folder: Path, host: HostFile) -> None:
    run, admission, quota = parse_run(f"{RUN}[admission]\nlabels = ['gpu']\n", "retina", host, folder)
    assert run.service.folder == str(folder / "server" / "runs" / "retina")
    assert (run.service.port, run.service.tls, run.service.clients, run.service.seed) == (9000, False, 5, 3)
    assert run.model.name == f"{folder / 'model.py'}:net"
    assert admission.rule().admits("", frozenset({"gpu", "eu"}))
    assert not admission.rule().admits("", frozenset({"eu"}))
    assert quota.requests_a_second is None


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("service.port", "port = 1\nclients = 5"),
        ("service.folder", "folder = 'x'\nclients = 5"),
        ("service.tls", "tls = true\nclients = 5"),
        ("service.token_seconds", "token_seconds = 5.0\nclients = 5"),
        ("store", "clients = 5\n[store]\nlog = 'sqlite:///x'"),
        ("webhook", "clients = 5\n[webhook]\nurl = 'https://x'"),
        ("login", f"clients = 5\n{LOGIN}"),
    ],
)
def test_what_is_the_servers_is_refused(key: str, line: str, folder: Path, host: HostFile) -> None:
    text = RUN.replace("clients = 5", line, 1)
    if "[" in line:
        text = RUN + line.partition("\n")[2]
    with pytest.raises(OffbeatError, match=rf"^run retina: {key} is for the server's own file: leave it out$"):
        parse_run(text, "retina", host, folder)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/model.py:net",
        "../model.py:net",
        "sub/../../model.py:net",
        "link/model.py:net",
        "os:getcwd",
    ],
)
def test_a_run_names_no_file_elsewhere(
    name: str, folder: Path, host: HostFile, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "model.py").write_text("raise SystemExit('was imported')\n")
    (folder / "link").symlink_to(elsewhere)
    with pytest.raises(OffbeatError, match=r"^run retina: model\.name") as caught:
        parse_run(RUN.replace("model.py:net", name), "retina", host, folder)
    assert "was imported" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "service = 3", "[service", "[admission]\nlabels = 3", "[quota]\nx = 1", "[model]\n"]
)
def test_a_wrong_file_is_an_error_of_the_users(text: str, folder: Path, host: HostFile) -> None:
    with pytest.raises(OffbeatError, match=r"^run retina: "):
        parse_run(text, "retina", host, folder)


def test_a_key_does_not_break_the_line_that_names_it(folder: Path, host: HostFile) -> None:
    with pytest.raises(OffbeatError, match=r"^run retina: unknown key service\.a\\nb: Allowed: "):
        parse_run(RUN.replace("clients = 5", 'clients = 5\n"a\\nb" = 1'), "retina", host, folder)


def test_a_run_has_at_most_a_million_clients(folder: Path, host: HostFile) -> None:
    with pytest.raises(OffbeatError, match=r"^run retina: service.clients = 1000001: at most 1,000,000 here$"):
        parse_run(RUN.replace("clients = 5", "clients = 1000001"), "retina", host, folder)


def test_the_file_of_a_server_of_several_runs_is_known_by_what_it_lacks() -> None:
    assert is_host_file({"service": {}})
    assert is_host_file({"service": {}, "webhook": {}})
    assert not is_host_file({"service": {}, "model": {}})
    assert not is_host_file({"service": {}, "algorithm": {}})
    assert not is_host_file({})


def test_logins_are_the_servers_and_need_an_address(folder: Path) -> None:
    path = folder / "server.toml"
    path.write_text(f"[service]\nfolder = 'server'\n{LOGIN}")
    login = host_file.load(path).login
    assert login is not None
    assert login.settings().roles == {"admin": {"a"}}
    path.write_text(f"[service]\nfolder = 'server'\ntls = false\n{LOGIN}")
    with pytest.raises(OffbeatError, match=r"login\.url is missing: with tls = false"):
        host_file.load(path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[admission]\nlabels = 'gpu'", "admission.labels = 'gpu': must be a list"),
        ("[quota]\nuploads_gb = nan", "quota.uploads_gb = nan: must be a finite number"),
        ("[quota]\nuploads = 3", "unknown key quota.uploads: did you mean 'uploads_gb'?"),
    ],
)
def test_a_mistake_in_its_own_sections_is_named_with_its_key(
    text: str, line: str, folder: Path, host: HostFile
) -> None:
    with pytest.raises(OffbeatError) as caught:
        parse_run(RUN + text, "retina", host, folder)
    assert str(caught.value).startswith(f"run retina: {line}")
