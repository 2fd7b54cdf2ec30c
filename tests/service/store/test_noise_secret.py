import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.store.noise_secret import NOISE_SECRET, copied_noise_secret, fingerprint, noise_secret


def test_it_is_made_once_for_its_owner_alone(tmp_path):
    folder = tmp_path / "server"
    secret = noise_secret(folder)
    assert len(secret) == 32
    assert noise_secret(folder) == secret == (folder / NOISE_SECRET).read_bytes()
    assert noise_secret(tmp_path / "other") != secret
    assert stat.S_IMODE((folder / NOISE_SECRET).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == [NOISE_SECRET]


def test_servers_that_start_together_get_the_same_one(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(noise_secret, [tmp_path / "server"] * 32))) == 1


def test_a_run_without_its_secret_is_refused(tmp_path):
    (tmp_path / "offbeat.sqlite").touch()
    with pytest.raises(OffbeatError, match=r"noise-secret is missing, without which .*initial_model"):
        noise_secret(tmp_path)
    assert not (tmp_path / NOISE_SECRET).exists()


def test_a_broken_secret_is_refused(tmp_path):
    (tmp_path / NOISE_SECRET).write_bytes(bytes(31))
    with pytest.raises(OffbeatError, match="noise-secret is broken: restore a backup"):
        noise_secret(tmp_path)


def test_a_copied_secret_is_32_bytes_for_its_owner_alone_and_never_made(tmp_path):
    path = tmp_path / "copied"
    line = rf"^cannot read service\.noise_secret = {path}: No such .*\(umask 077; head -c 32 /dev/urandom > copied\)$"
    with pytest.raises(OffbeatError, match=line):
        copied_noise_secret(path)
    path.write_bytes(bytes(33))
    path.chmod(0o600)
    with pytest.raises(OffbeatError, match=r"must have 32 random bytes: copy it again$"):
        copied_noise_secret(path)
    path.write_bytes(bytes(range(32)))
    assert copied_noise_secret(path) == bytes(range(32))
    for mode in (0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(OffbeatError, match=f"^others may read service.noise_secret: chmod 600 {path}$"):
            copied_noise_secret(path)


def test_a_fingerprint_tells_secrets_apart_and_does_not_show_them():
    one, other = bytes(range(32)), bytes(range(1, 33))
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)
    assert len(fingerprint(one)) == 32
    assert fingerprint(one) not in one.hex()
