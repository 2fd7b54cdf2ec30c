import json
import re
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from offbeat_client.client_folder.identity import ClientFolder
from offbeat_client.client_folder.trained_models import TrainedModels
from offbeat_private.accounting import epsilon
from offbeat_private.masks.signing_key import public_bytes

Command = Callable[..., tuple[int, str, str]]

PAGE = (Path(__file__).parents[2] / "docs/privacy/accounting.md").read_text(encoding="utf-8")
PLAN = {
    "clients": "1000", "participations": "10", "separation": "50", "buffer": "10", "versions": "1000",
    "delta": "1e-6", "target-epsilon": "4",
}  # fmt: skip


def plan(offbeat: Command, **changes: str) -> tuple[int, str, str]:
    values = PLAN | {key.replace("_", "-"): value for key, value in changes.items()}
    return offbeat("privacy", "plan", *(word for key, value in values.items() for word in (f"--{key}", value)))


class TestPlan:
    def test_prints_noise_and_gain(self, offbeat: Command) -> None:
        code, out, err = plan(offbeat)
        assert (code, err) == (0, "")
        assert "noise_multiplier = 3.775 for either mechanism\n" in out
        assert "ε = 3.999 without a client's updates, 8.895 with others in their place, at δ = 1e-06\n" in out
        assert "clients at work at the same time: at most 500\n" in out
        # 3.775 · √(1001/2) = 84.5
        assert re.search(r"independent +1 +84\.5 +1\.00 ×", out)
        assert re.search(r"banded +50 +17\.4 +4\.86 ×", out)

    @pytest.mark.parametrize("target", ["0.01", "2", "40"])
    def test_printed_noise_is_enough(self, offbeat: Command, target: str) -> None:
        _, out, _ = plan(offbeat, target_epsilon=target)
        (sigma,) = re.findall(r"noise_multiplier = (\S+)", out)
        assert 0.99 * float(target) < epsilon(float(sigma), 10, 1e-6) <= float(target)

    def test_without_a_separation_there_is_one_mechanism(self, offbeat: Command) -> None:
        code, out, _ = plan(offbeat, separation="1")
        assert code == 0
        assert "noise_multiplier = 3.775 for independent noise\n" in out
        assert not re.search(r"banded +1 ", out)
        assert "banded noise is less from a separation of 2 on\n" in out

    def test_refuses_what_cannot_be(self, offbeat: Command) -> None:
        code, out, err = plan(offbeat, versions="1001")
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert "lower the versions to 1,000 or raise the participations to 11" in err
        assert "lower the separation to 99" in plan(offbeat, separation="100")[2]

    @pytest.mark.parametrize("option", sorted(PLAN))
    def test_numbers_out_of_range_are_refused(self, offbeat: Command, option: str) -> None:
        code, _, err = plan(offbeat, **{option: "0"})
        assert code == 2
        assert f"--{option}" in err


class TestEpsilon:
    OPTIONS = ("--noise-multiplier", "5", "--participations", "10", "--delta", "1e-5")

    @pytest.mark.parametrize("option", ["--noise-multiplier", "--delta"])
    def test_nan_is_one_line(self, option: str, offbeat: Command) -> None:
        code, _, err = offbeat("privacy", "epsilon", *self.OPTIONS, option, "nan")
        assert code != 0
        assert (
            err == f"offbeat: Invalid value for '{option}': nan is not a number. See offbeat privacy epsilon --help.\n"
        )

    @pytest.mark.parametrize("mechanism", ["independent", "banded"])
    def test_json(self, offbeat: Command, mechanism: str) -> None:
        code, out, _ = offbeat("privacy", "epsilon", *self.OPTIONS, "--mechanism", mechanism, "--json")
        assert code == 0
        assert json.loads(out) == {
            "epsilon": 2.594,
            "epsilon_replace_one": 5.759,
            "delta": 1e-5,
            "noise_multiplier": 5.0,
            "participations": 10,
            "mechanism": mechanism,
        }

    def test_text(self, offbeat: Command) -> None:
        _, out, _ = offbeat("privacy", "epsilon", *self.OPTIONS)
        assert out == (
            "ε = 2.594 without a client's updates (zero-out)\nε = 5.759 with others in their place (replace-one)\n"
        )


class TestPage:
    """The page's commands print what stands beneath them."""

    @pytest.mark.parametrize(
        ("line", "shown"), re.findall(r"^\$ offbeat (.*)\n((?:(?!\$ |```).*\n)+)", PAGE, re.MULTILINE)
    )
    def test_commands(self, line: str, shown: str, offbeat: Command) -> None:
        _, out, err = offbeat(*shlex.split(line))
        printed, expected = ([row.split() for row in text.splitlines() if row.strip()] for text in (out + err, shown))
        assert printed == expected

    def test_python(self, capsys: pytest.CaptureFixture[str]) -> None:
        (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        exec(example, {})
        assert capsys.readouterr().out.splitlines() == re.findall(r"^# (.*)", example, re.MULTILINE)


class TestKey:
    def test_makes_a_key_once_and_prints_its_public_half(self, offbeat: Command, tmp_path: Path) -> None:
        folder = tmp_path / "new" / "client"
        code, out, err = offbeat("privacy", "key", "--folder", str(folder))
        assert (code, err) == (0, "")
        path = folder / "signing-key"
        key = load_pem_private_key(path.read_bytes(), password=None)
        assert isinstance(key, Ed25519PrivateKey)
        assert public_bytes(out.strip()) == key.public_key().public_bytes_raw()
        assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, path)] == [0o700, 0o600]
        with ClientFolder(folder):  # while the client is at work, too
            assert offbeat("privacy", "key", "--folder", str(folder)) == (0, out, "")

    def test_is_another_one_for_each_folder(self, offbeat: Command, tmp_path: Path) -> None:
        assert len({offbeat("privacy", "key", "--folder", str(tmp_path / name))[1] for name in "ab"}) == 2

    def test_of_a_wrong_file_is_one_line(self, offbeat: Command, tmp_path: Path) -> None:
        (tmp_path / "signing-key").write_text("no key")
        code, out, err = offbeat("privacy", "key", "--folder", str(tmp_path))
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "is not an Ed25519 key" in err


class TestCompare:
    @staticmethod
    def kept(folder: Path, *digests: str) -> str:
        folder.mkdir()
        models = TrainedModels(folder, bytes(32))
        for version, digest in enumerate(digests):
            models.keep(version, digest * 64)
        (path,) = folder.iterdir()
        return str(path)

    def test_counts_the_versions_that_both_clients_got(self, offbeat: Command, tmp_path: Path) -> None:
        one, two = self.kept(tmp_path / "a", "a", "b", "c"), self.kept(tmp_path / "b", "a", "b")
        assert offbeat("privacy", "compare", one, two) == (0, "2 versions are in both, with the same models\n", "")
        three = self.kept(tmp_path / "c", "a")
        assert offbeat("privacy", "compare", one, three)[1] == "1 version is in both, with the same models\n"

    def test_says_in_one_line_that_models_differ(self, offbeat: Command, tmp_path: Path) -> None:
        one, two = self.kept(tmp_path / "a", "a", "b"), self.kept(tmp_path / "b", "a", "c")
        code, out, err = offbeat("privacy", "compare", one, two)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "the server gave different models as version 1: bbbb" in err
