import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from offbeat_private.accounting import epsilon
from offbeat_private.noise.correlated_noise import prefix_sum_error

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

    def test_gains_of_banded_noise(self) -> None:
        (shown,) = re.findall(r"it is ([\d., and]+) with p = 10, 50, 100 and 200", PAGE)
        independent = prefix_sum_error(participations=10, separation=100, bands=1, versions=2000)
        gains = [independent / prefix_sum_error(10, 100, bands, 2000) for bands in (10, 50, 100, 200)]
        assert re.findall(r"[\d.]+", shown) == [f"{gain:.1f}" for gain in gains]
