"""Mutual TLS between fronts and leader: one CA, two roles, files that are renewed."""

import asyncio
import logging
import random
import shutil
import ssl
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from offbeat_core.errors import OffbeatError
from offbeat_core.serving import certificates as core
from offbeat_core.serving.certificates import Certificates

from offbeat.service.internal.internal_certificates import front_context, leader_context, make_internal_certificates
from tests.error_line import error_line
from tests.service.internal.conftest import Play
from tests.service.internal.ends import BEAT, HELLO, LEASE, Leader, Raw, beat, fronting, leading, until


@asynccontextmanager
async def leading_by_tls(certificates: Certificates) -> AsyncGenerator[tuple[Leader, tuple[str, int]]]:
    async with leading(("127.0.0.1", 0), beat, context=leader_context(certificates)) as leader:
        yield leader, leader.endpoint._servers[0].sockets[0].getsockname()


async def shake_hands(
    address: tuple[str, int], context: ssl.SSLContext, *, then: bytes = b"", is_greeted: bool = True
) -> Any:
    """Say hello over TLS, and send more; ``ConnectionError`` if the hello is not accepted. Return the TLS session."""
    try:
        reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="leader.offbeat.internal")
        end = Raw(reader, writer)
        try:
            if is_greeted:
                end.ask(1, HELLO)
                assert "welcome" in await end.read()
            writer.write(then)
            if then:
                await end.rest()
            return writer.get_extra_info("ssl_object").session
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    except (OSError, asyncio.IncompleteReadError) as error:
        raise ConnectionError(str(error)) from None


def serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    now = core._now()
    monkeypatch.setattr(core, "_now", lambda: now + timedelta(days=days))


def test_a_front_asks_a_leader_on_another_machine(play: Play, tmp_path: Path) -> None:
    made = make_internal_certificates(tmp_path / "tls", ["leader", "standby"], ["front-1"])
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()} == dict.fromkeys(
        ["ca.pem", "ca.key", *(f"{name}.{end}" for name in made for end in ("pem", "key"))], 0o600
    )

    async def work() -> None:
        for machine in ("leader", "standby"):
            async with (
                leading_by_tls(made[machine]) as (leader, address),
                fronting(address, certificates=made["front-1"]) as front,
            ):
                assert await asyncio.gather(*(front.ask(LEASE) for _ in range(100))) == [BEAT] * 100
                assert len(leader.questions) == 100

    play(work())


@pytest.mark.parametrize("whose", ["another CA's", "a leader's", "none"])
def test_only_fronts_of_the_deployment_are_accepted(play: Play, tmp_path: Path, whose: str) -> None:
    made = make_internal_certificates(tmp_path / "tls", ["leader", "standby"], ["front"])
    other = make_internal_certificates(tmp_path / "other", ["leader"], ["front"])
    if whose == "another CA's":
        context = front_context(other["front"])
        context.load_verify_locations(made["front"].ca)
    elif whose == "a leader's":
        context = front_context(made["standby"])
    else:
        context = ssl.create_default_context(cafile=made["front"].ca)

    async def work() -> None:
        async with leading_by_tls(made["leader"]) as (leader, address):
            with pytest.raises(ConnectionError):
                await shake_hands(address, context)
            await shake_hands(address, front_context(made["front"]))
            await until(lambda: len(leader.gone) == 1)
            assert not leader.endpoint.channels

    play(work())


def test_every_connection_shows_its_certificate_by_tls_1_3(play: Play, tmp_path: Path) -> None:
    made = make_internal_certificates(tmp_path, ["leader"], ["front"])
    old = front_context(made["front"])
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2

    async def work() -> None:
        async with leading_by_tls(made["leader"]) as (_, address):
            with pytest.raises(ConnectionError):
                await shake_hands(address, old)
            session = await shake_hands(address, front_context(made["front"]))
            assert session is None or not session.has_ticket  # with which another could go without

    play(work())


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", bytes(8), random.Random(0).randbytes(5_000_000)])
@pytest.mark.parametrize("is_greeted", [False, True])
def test_garbage_within_tls_closes_the_connection(play: Play, tmp_path: Path, sent: bytes, is_greeted: bool) -> None:
    made = make_internal_certificates(tmp_path, ["leader"], ["front"])

    async def work() -> None:
        async with leading_by_tls(made["leader"]) as (leader, address):
            await shake_hands(address, front_context(made["front"]), then=sent, is_greeted=is_greeted)
            await until(lambda: not leader.endpoint.channels)
            assert leader.questions == []
            await shake_hands(address, front_context(made["front"]))

    play(work())


def test_bytes_that_are_not_tls_are_refused(play: Play, tmp_path: Path) -> None:
    made = make_internal_certificates(tmp_path, ["leader"], ["front"])

    async def work() -> None:
        async with leading_by_tls(made["leader"]) as (leader, address):
            reader, writer = await asyncio.open_connection(*address)
            Raw(reader, writer).ask(1, HELLO)
            with suppress(ConnectionError):
                assert b"welcome" not in await reader.read()
            writer.close()
            assert not leader.endpoint.channels

    play(work())


@pytest.mark.parametrize("whose", ["another CA's", "a front's"])
def test_a_front_believes_only_leaders_of_the_deployment(
    play: Play, tmp_path: Path, whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = make_internal_certificates(tmp_path / "tls", ["leader"], ["front", "front-2"])
    other = make_internal_certificates(tmp_path / "other", ["leader"], ["front"])
    false = other["leader"] if whose == "another CA's" else made["front-2"]

    async def work() -> None:
        async with (
            leading_by_tls(false) as (impostor, address),
            leading_by_tls(made["leader"]) as (_, good),
            fronting(address, good, certificates=made["front"]) as front,
        ):
            assert await front.ask(LEASE) == BEAT
            assert impostor.questions == impostor.gone == []

    with caplog.at_level(logging.WARNING, "offbeat.service"):
        play(work())
    problems = [record.fields["problem"] for record in caplog.records if record.msg == "no_leader"]
    assert "certificate verify failed" in problems[0]


def test_a_leader_takes_up_renewed_files_without_a_restart(
    play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = make_internal_certificates(tmp_path / "tls", ["leader"], ["front"])
    other = make_internal_certificates(tmp_path / "other", ["leader"], ["front"])

    def replace(certificates: Certificates) -> None:
        for name in ("ca", "key", "certificate"):
            shutil.copy(getattr(certificates, name), tmp_path / "next")
            (tmp_path / "next").replace(getattr(leader, name))

    leader = Certificates(*(tmp_path / f"leader.{name}" for name in ("ca", "pem", "key")))
    replace(made["leader"])
    ours, theirs = front_context(made["front"]), front_context(other["front"])

    async def work() -> None:
        async with leading_by_tls(leader) as (_, address):
            await shake_hands(address, ours)
            with pytest.raises(ConnectionError):
                await shake_hands(address, theirs)
            leader.key.write_bytes(b"broken")
            await shake_hands(address, ours)
            replace(other["leader"])
            await shake_hands(address, theirs)
            with pytest.raises(ConnectionError):
                await shake_hands(address, ours)
            leader.ca.unlink()
            await shake_hands(address, theirs)

    with caplog.at_level(logging.ERROR, "offbeat.service"):
        play(work())
    broken = [record.fields["problem"] for record in caplog.records]
    assert len(broken) == 2
    assert all("make or copy them again" in line for line in broken)


def test_certificates_are_kept_until_they_near_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_internal_certificates(tmp_path, ["leader"], ["front"])
    serials = {path: serial(path) for path in tmp_path.glob("*.pem")}
    later(monkeypatch, 334)
    assert make_internal_certificates(tmp_path, ["leader"], ["front", "new"]).keys() == {"leader", "front", "new"}
    assert {path: serial(path) for path in serials} == serials
    later(monkeypatch, 2)
    make_internal_certificates(tmp_path, ["leader"], ["front"])
    changed = {path for path in serials if serial(path) != serials[path]}
    assert changed == {first["leader"].certificate, first["front"].certificate}


def test_a_machine_may_change_its_role(tmp_path: Path) -> None:
    made = make_internal_certificates(tmp_path, ["leader"], ["machine"])
    before = serial(made["machine"].certificate)
    make_internal_certificates(tmp_path, ["leader", "machine"], [])
    found = x509.load_pem_x509_certificate(made["machine"].certificate.read_bytes())
    assert found.serial_number != before
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [purpose.dotted_string for purpose in usage] == ["1.3.6.1.5.5.7.3.1"]


@pytest.mark.parametrize("name", ["ca", "", "../x", "a/b", "a b", "-x", "x" * 41, "x\n"])
def test_names_are_those_of_files(tmp_path: Path, name: str) -> None:
    assert "cannot name a certificate" in error_line(make_internal_certificates, tmp_path, ["leader"], [name])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.key", "ca.pem", "leader.key", "leader.pem"]


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert "give each another name" in error_line(make_internal_certificates, tmp_path, ["a"], ["b", "a"])
    made = make_internal_certificates(tmp_path, ["leader"], ["front"])
    missing = Certificates(made["front"].ca, tmp_path / "missing.pem", made["front"].key)
    crossed = Certificates(made["front"].ca, made["front"].certificate, made["leader"].key)
    for broken in (missing, crossed):
        assert f"cannot use {broken.certificate}" in error_line(front_context, broken)
        assert f"cannot use {broken.certificate}" in error_line(leader_context, broken)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(OffbeatError, match=r"a certificate must be made, but .*ca\.key is missing"):
        make_internal_certificates(tmp_path, ["leader"], ["front", "other"])
