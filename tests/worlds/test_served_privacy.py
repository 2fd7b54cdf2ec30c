import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from offbeat_core.errors import OffbeatError
from offbeat_private.accounting import epsilon
from offbeat_private.agreed_plan import AgreedPlan
from offbeat_private.noise.correlated_noise import sensitivity
from offbeat_private.signed_terms import Terms, sign

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.buffers.noisy_sum import NoisySum
from offbeat.algorithms.components.buffers.secret import SecretLatestOfEach, SecretSum
from offbeat.config.server_file import load
from offbeat.service.engine.privacy_status import PrivacySettings
from offbeat.service.masked.helper_connection import HelperConnection
from offbeat.service.store.backup import back_up
from offbeat.service.store.noise_secret import fingerprint
from offbeat.worlds.serve import _config, build_coordinator
from offbeat.worlds.served_privacy import privacy_settings
from tests.error_line import error_line
from tests.service.conftest import body_of, running
from tests.service.http_client import until
from tests.service.masked.conftest import MaskedServer, enrolled_helper

PARAMETERS = 650  # softmax on digits
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TERMS = {
    "run": bytes(16), "helper_key": KEY.public_key().public_bytes_raw(), "length": PARAMETERS, "buffer": 5,
    "min_clients": 3, "clip_norm": 2.0, "noise_multiplier": 0.5, "mechanism": "banded", "max_participations": 4,
    "min_separation": 2, "bands": 2, "bits": 16, "local": AgreedPlan(steps=1, batch_size=8, lr=0.1),
}  # fmt: skip
OTHER_PLAN = AgreedPlan(steps=1, batch_size=8, lr=0.05)
SERVER = """
local = { steps = 1, batch_size = 8, lr = 0.1 }
data.name = "digits"
model.name = "softmax"
[service]
folder = "run"
clients = 40
port = 0
HELPER
[privacy]
MASKED
clip_norm = 2.0
noise_multiplier = 0.5
mechanism = "banded"
max_participations = 4
min_separation = 2
delta = 1e-3
[algorithm]
algorithm = "fedbuff"
buffer_size = 3
concurrency = 10
"""
HELPER = 'helper_terms = "terms.json"\nhelper_token_file = "token"'
STORE = '[store]\nlog = "postgresql://x/y"\nblobs = "s3://z"'
MASKED = 'helper = "https://localhost:9443"\nmin_clients = 3\nbits = 16'


def server_file(folder: Path, helper: str = HELPER, masked: str = MASKED, **terms):
    (folder / "terms.json").write_bytes(sign(Terms(**TERMS | terms), KEY).to_bytes())
    (folder / "token").write_text("obh_token\n", encoding="ascii")
    path = folder / "server.toml"
    path.write_text(SERVER.replace("HELPER", helper).replace("MASKED", masked), encoding="utf-8")
    return load(path)


def test_a_masked_run_has_the_terms_of_its_helper(tmp_path):
    file = server_file(tmp_path)
    coordinator, _ = build_coordinator(file)
    buffer, participation = coordinator.algorithm.buffer, coordinator.participation
    assert isinstance(buffer, SecretSum)
    assert (buffer.least, buffer.step) == (3, Terms(**TERMS).step)
    assert (participation.limit, participation.separation) == (4, 2)
    with privacy_settings(file, PARAMETERS) as settings:
        assert isinstance(settings.helper, HelperConnection)
        assert (settings.noise_multiplier, settings.delta, settings.terms) == (0.5, 1e-3, Terms(**TERMS))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"min_clients": 2}, "min_clients is 2, but privacy.min_clients is 3: set it to the helper's"),
        ({"clip_norm": 1.0}, "clip_norm is 1.0, but privacy.clip_norm is 2.0"),
        ({"noise_multiplier": 0.25}, "noise_multiplier is 0.25, but privacy.noise_multiplier is 0.5"),
        ({"mechanism": "independent", "bands": 1}, "mechanism is independent, but privacy.mechanism is banded"),
        ({"max_participations": 5}, "max_participations is 5, but privacy.max_participations is 4"),
        ({"min_separation": 3}, "min_separation is 3, but privacy.min_separation is 2"),
        ({"bands": 1}, "bands is 1, but this run's noise has 2"),
        ({"bits": 15}, "bits is 15, but privacy.bits is 16"),
        ({"length": 651}, "length is 651, but the model has 650 parameters: enrol with terms.length = 650"),
        ({"normalise": True}, "normalise is true, but fedbuff needs false: enrol with terms.normalise = false"),
        ({"local": OTHER_PLAN}, r"a client's lr is 0\.1 at version 0, the terms say 0\.05: enrol with the \[local\]"),
        ({"buffer": 4}, "buffer is 4, but a sum has up to 5 updates .* enrol with terms.buffer = 5"),
    ],
)
def test_terms_that_differ_from_the_file_are_one_line(terms, message, tmp_path):
    file = server_file(tmp_path, **terms)
    assert re.match(rf"{tmp_path / 'terms.json'}: {message}", error_line(build_coordinator, file))


def test_the_plans_of_an_algorithm_with_periods_are_agreed(tmp_path):
    alone = {"noise_multiplier": 0.0, "mechanism": "independent", "min_separation": 1, "bands": 1, "buffer": 40}
    server_file(tmp_path, **alone)
    path = tmp_path / "server.toml"
    text = path.read_text(encoding="utf-8").split("[algorithm]")[0]
    for line in ("noise_multiplier = 0.5\n", 'mechanism = "banded"\n', "min_separation = 2\n"):
        text = text.replace(line, "")
    pattern = 'pattern = { name = "full", every = 5 }\nweighting = "uniform"\n'
    path.write_text(f'{text}[algorithm]\nalgorithm = "async_comm_sgd"\n{pattern}', encoding="utf-8")
    line = error_line(build_coordinator, load(path))
    assert line.endswith("a client's steps is 5, the terms say 1: enrol with the [local] of this file")
    terms = Terms(**TERMS | alone | {"local": AgreedPlan(steps=1, most_steps=5, batch_size=8, lr=0.1)})
    (tmp_path / "terms.json").write_bytes(sign(terms, KEY).to_bytes())
    build_coordinator(load(path))


def test_a_helper_that_reports_for_another_delta_is_one_line(tmp_path):
    file = server_file(tmp_path)
    path = tmp_path / "terms.json"

    def enrolled(delta, **terms):
        path.write_bytes(sign(Terms(**TERMS | terms), KEY, delta).to_bytes())

    enrolled(1e-6)
    assert error_line(build_coordinator, file) == (
        f"{path}: delta is 1e-06, but privacy.delta is 0.001: set it to the helper's, so that both report the same ε"
    )
    enrolled(1e-3)
    build_coordinator(file)
    # Without noise there is no ε.
    file = differences_file(tmp_path, payload="difference")
    enrolled(1e-6, noise_multiplier=0.0, mechanism="independent", min_separation=1, bands=1, payload="difference")
    build_coordinator(file)


def differences_file(folder: Path, **terms):
    """Return the file of a run of FedLaAvg with masks alone."""
    alone = {"noise_multiplier": 0.0, "mechanism": "independent", "min_separation": 1, "bands": 1}
    server_file(folder, **alone, **terms)
    path = folder / "server.toml"
    text = path.read_text(encoding="utf-8").split("[algorithm]")[0]
    for line in ("noise_multiplier = 0.5\n", 'mechanism = "banded"\n', "min_separation = 2\n"):
        text = text.replace(line, "")
    path.write_text(text + '[algorithm]\nalgorithm = "fedlaavg"\ncohort = 3\nweighting = "uniform"\n', encoding="utf-8")
    return load(path)


def test_a_run_of_differences_has_terms_that_say_so(tmp_path):
    line = error_line(build_coordinator, differences_file(tmp_path))
    assert line.endswith(
        'payload is delta, but this run\'s clients send a difference: enrol with terms.payload = "difference"'
    )
    coordinator, _ = build_coordinator(differences_file(tmp_path, payload="difference"))
    buffer = coordinator.algorithm.buffer
    assert isinstance(buffer, SecretLatestOfEach)
    assert buffer.bound == 5 * 2 * Terms(**TERMS).largest


def test_terms_that_are_not_signed_are_refused(tmp_path):
    file = server_file(tmp_path)
    path = tmp_path / "terms.json"
    path.write_text(path.read_text().replace("fixed", "").replace('bits\\":16', 'bits\\":17'))
    assert "signature does not fit its terms" in error_line(build_coordinator, file)
    path.unlink()
    assert (
        error_line(build_coordinator, file) == f"cannot read service.helper_terms = {path}: No such file or directory"
    )


def test_a_missing_token_is_one_line(tmp_path):
    file = server_file(tmp_path)
    (tmp_path / "token").unlink()
    with (
        pytest.raises(OffbeatError, match=r"cannot read service\.helper_token_file"),
        privacy_settings(file, PARAMETERS),
    ):
        pytest.fail("it has a token")


@pytest.mark.parametrize(
    ("helper", "masked", "message"),
    [
        ("", MASKED, "service.helper_terms is missing: privacy.helper needs it"),
        ('helper_terms = "terms.json"', MASKED, "service.helper_token_file is missing: privacy.helper needs it"),
        (HELPER, "", "helper_token_file and helper_ca are for privacy.helper: set that"),
        (HELPER, MASKED.replace("https:", "http:"), "privacy.helper must be an https address"),
        (f'{HELPER}\nnoise_secret = "x"', MASKED, "noise_secret is for noise without a helper where servers share"),
        (
            'noise_secret = "x"',
            "",
            r"noise without a helper where servers share a \[store\]: leave it out$",
        ),
        ('earlier_runs = ["x"]', "", "service.earlier_runs count towards privacy.epsilon_total: set that"),
        (STORE, "", "service.noise_secret is missing: noise without a helper needs one secret on all servers"),
        (f"{HELPER}\nmax_update_norm = 1.0", MASKED, r"max_update_norm does not go with \[privacy\]"),
        ("max_examples = 9", "", r"service\.max_examples does not go with \[privacy\], where .*: leave it out"),
    ],
)
def test_keys_that_do_not_go_together_are_one_line(helper, masked, message, tmp_path):
    assert re.search(message, error_line(server_file, tmp_path, helper, masked))


def test_earlier_runs_count_towards_the_limit_of_epsilon(tmp_path):
    config = {"privacy": {"noise_multiplier": 1.0, "delta": 1e-3}}
    with running(tmp_path / "earlier", config=config) as server:
        peer = server.enrol(name="ward 3")
        assert peer.send(peer.check_in(), torch.ones(6))["counted"]
    earlier = f'earlier_runs = ["{tmp_path / "earlier"}"]'
    file = server_file(tmp_path, earlier, "epsilon_total = 20.0")
    coordinator, _ = build_coordinator(file)
    assert coordinator.participation.limit == 4  # σ = ½, δ = 1e-3: ε is 19.62 after four
    with privacy_settings(file, PARAMETERS) as settings:
        assert (settings.budget.epsilon_total, settings.budget.earlier) == (20.0, {"ward 3": 1.0})
        assert settings.most_participations("ward 3") == 3  # 1 / 1² and 3 / ½² are 13, four would be 17 > 16.4
        assert settings.most_participations("ward 4") is None
    file = server_file(tmp_path, masked=f"{MASKED}\nepsilon_total = 20.0")
    assert "epsilon_total does not go with a helper, which counts by key" in error_line(build_coordinator, file)


def test_other_wrappers_do_not_go_with_private_sums(tmp_path):
    server_file(tmp_path)
    path = tmp_path / "server.toml"
    line = error_line(build_coordinator, load(path, ["server.update_clip_norm=1.0"]))
    assert "[privacy] does not work with server.aggregate, update_clip_norm and max_update_norm" in line


def test_the_helpers_address_may_change_and_its_terms_may_not(tmp_path):
    other = MASKED.replace("9443", "9444")
    one, two = server_file(tmp_path), server_file(tmp_path, masked=other)
    assert one.resolved() == two.resolved()
    assert "https" not in str(one.resolved())
    configs = [
        _config(one, PrivacySettings(0.5, 1e-3, Terms(**TERMS | {"run": bytes([number] * 16)}))) for number in (1, 2)
    ]
    assert configs[0] != configs[1]


def private_run(folder: Path):
    """Return a run of the server's own noise on a model of six parameters."""
    file = server_file(folder, "", "")
    coordinator, _ = build_coordinator(file)
    assert isinstance(coordinator.algorithm.buffer, NoisySum)
    return file, coordinator


def test_noise_is_made_of_the_secret_in_the_folder(tmp_path):
    noises = []
    for name in ("one", "one", "other"):
        (tmp_path / name).mkdir(exist_ok=True)
        _, coordinator = private_run(tmp_path / name)
        noises.append(coordinator.algorithm.buffer._noise.noise(1, [bytes(32)]).tolist())
    assert noises[0] == noises[1] != noises[2]


def test_a_server_without_a_helper_adds_noise_of_its_secret(tmp_path, monkeypatch):
    weighed, weigh = [], FedBuff.weigh
    monkeypatch.setattr(FedBuff, "weigh", lambda self, update: weighed.append(update) or weigh(self, update))
    file, coordinator = private_run(tmp_path)
    weighed.clear()  # of the dry run
    assert len((tmp_path / "run" / "noise-secret").read_bytes()) == 32
    with privacy_settings(file, PARAMETERS) as settings:
        secret = fingerprint((tmp_path / "run" / "noise-secret").read_bytes())
        assert settings == PrivacySettings(0.5, 1e-3, noise_secret=secret)
        assert _config(file, settings)["privacy"]["noise_secret"] == secret
    layout = [("w", (PARAMETERS,))]

    def served(folder, coordinator):
        return running(
            folder,
            lambda: coordinator.algorithm,
            clients=40,
            model=torch.zeros(PARAMETERS),
            layout=layout,
            participation=coordinator.participation,
            privacy=settings,
            checkpoint_seconds=1e6,
            max_update_norm=file.settings().service.max_update_norm,
        )

    with served(tmp_path / "run", coordinator) as server:
        peers = [server.enrol(examples=7) for _ in range(6)]
        for peer in peers:  # the second version has noise of two rows
            visit = peer.check_in()
            assert visit["privacy"] is None
            # However long, and however many examples, steps or seconds the client reports, here or before.
            assert peer.http.post("/v1/examples", json={"examples": 8}).status_code == 200
            body = body_of(torch.full((PARAMETERS,), 100.0))
            report = {"examples": 99, "normaliser": 3.0, "step_seconds": 1.0, "loss": 1.0}
            assert peer.put(visit, body, **report).json()["receipt"]["counted"]
        assert not any(map(server.service.accounts.examples.is_known, range(6)))
        assert {(one.examples, one.normaliser, one.loss) for one in weighed} == {(1, visit["plan"]["steps"], None)}
        until(lambda: server.service.engine.coordinator.algorithm.version == 2)
        model = server.service.engine.coordinator.algorithm.model.clone()
        status = server.admin.http.get("/v1/status").json()["privacy"]
        assert (status["sums_opened"], status["helper"]) == (2, None)
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
        back_up(tmp_path / "run", tmp_path / "copy")
    # Two means of vectors of norm 2 and of noise: 3 updates, σ · C = 1, first row 1 or more.
    assert 0.1 < (model - model.mean()).std() < 2
    file = load(tmp_path / "server.toml", [f"service.folder={tmp_path / 'killed'}"])
    again, _ = build_coordinator(file)
    with served(tmp_path / "killed", again) as server:
        assert torch.equal(server.service.engine.coordinator.algorithm.model, model)
    # Resumed later, the copy would not count its clients' participations since the copy.
    file = load(tmp_path / "server.toml", [f"service.folder={tmp_path / 'copy'}"])
    assert re.search("noise-secret is missing.*service.initial_model", error_line(build_coordinator, file))


def test_a_helpers_noise_is_in_the_versions_of_a_masked_run(tmp_path):
    terms = {key: value for key, value in TERMS.items() if key not in ("run", "helper_key", "bands", "local")}
    local = {"steps": 1, "batch_size": 8, "lr": 0.1}
    with enrolled_helper(tmp_path / "helper", local=local, **terms, delta=1e-3) as helper:
        file = server_file(tmp_path)
        (tmp_path / "terms.json").write_bytes((tmp_path / "helper" / "terms.json").read_bytes())
        coordinator, _ = build_coordinator(file)
        settings = PrivacySettings(0.5, 1e-3, helper.terms, helper)
        with running(
            tmp_path / "run",
            lambda: coordinator.algorithm,
            clients=40,
            model=torch.zeros(PARAMETERS),
            layout=[("w", (PARAMETERS,))],
            participation=coordinator.participation,
            privacy=settings,
        ) as served:
            server = MaskedServer(served, helper)
            until(lambda: server.status()["helper"] == "ok")
            for number in range(3):
                server.client(number).give(torch.full((PARAMETERS,), 0.01))
            until(lambda: server.algorithm.version == 1)
            noise = -3 * (server.algorithm.model + 0.01)
            # The first row of banded noise: σ (C + step · √d) times sensitivity over √k, here of k = 4 and b = p = 2.
            expected = 0.5 * (2 + helper.terms.step * PARAMETERS**0.5) * sensitivity(4, 2, 2) / 2
            assert noise.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * PARAMETERS))
            assert abs(noise.mean().item()) < 5 * expected / math.sqrt(PARAMETERS)
            assert server.status()["epsilon"]["largest"] == pytest.approx(epsilon(0.5, 1, 1e-3))
