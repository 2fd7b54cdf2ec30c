import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config.privacy_section import PrivacySection

PRIVACY = "privacy={ clip_norm = 1.0, noise_multiplier = 2.0, max_participations = 5 }"


def test_banded_noise_has_a_row_for_each_sum_between_two_of_a_client():
    banded = PrivacySection(clip_norm=1.0, mechanism="banded", min_separation=7)
    assert banded.bands == 7
    assert banded.model_copy(update={"mechanism": "independent"}).bands == 1


@pytest.mark.parametrize(("total", "most"), [(4.4, 1), (6.5, 1), (6.6, 2), (8.3, 2), (8.4, 3), (100.0, 5), (None, 5)])
def test_a_limit_of_epsilon_lowers_the_participations(total, most):
    # σ = 1, δ = 1e-5: ε is 4.377, 6.573 and 8.385 after one, two and three.
    values = {"clip_norm": 1.0, "noise_multiplier": 1.0, "max_participations": 5, "epsilon_total": total}
    assert PrivacySection(**values).participations == most


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("{ helper = 'a', clip_norm = 1.0 }", "min_clients must be at least 2 with a helper"),
        ("{ clip_norm = 1.0, noise_multiplier = 1.0 }", "max_participations is missing"),
        ("{ min_clients = 2 }", "clip_norm"),
        ("{ clip_norm = 0.0 }", "clip_norm"),
        ("{ clip_norm = 1.0, bits = 25 }", "bits"),
        ("{ clip_norm = 1.0, delta = 1.0 }", "delta"),
        ("{ clip_norm = 1.0, min_separation = 0 }", "min_separation"),
        ("{ clip_norm = 1.0, mechanism = 'band' }", "mechanism"),
        ("{ clip_norm = 1.0, clip = 2 }", "unknown key"),
        ("{ clip_norm = 1.0, epsilon_total = 2.0 }", "epsilon_total needs noise, without which ε has no bound"),
        (
            "{ clip_norm = 1.0, noise_multiplier = 1.0, max_participations = 5, epsilon_total = 4.3 }",
            "with noise_multiplier = 1 one participation has a larger ε than epsilon_total = 4.3: raise one of them",
        ),
    ],
)
def test_a_wrong_section_is_one_line(experiment, keys, message):
    with pytest.raises(OffbeatError) as caught:
        experiment(f"privacy={keys}")
    assert message in str(caught.value)


def test_an_algorithm_may_have_other_keys(experiment):
    loaded = experiment(PRIVACY, "algorithms.fedavg={ privacy = { noise_multiplier = 0.5 }, weighting = 'uniform' }")
    changed = loaded.privacy_of("fedavg")
    assert (changed.noise_multiplier, changed.clip_norm, changed.max_participations) == (0.5, 1.0, 5)
    assert loaded.resolved("fedavg", 1, "digits")["privacy"] == changed.model_dump(exclude_none=True)


def test_an_algorithm_may_be_private_alone(experiment):
    loaded = experiment("algorithms.fedavg={ privacy = { clip_norm = 0.5 } }", "algorithms.fedasync={}")
    assert loaded.privacy_of("fedavg").clip_norm == 0.5
    assert loaded.privacy_of("fedasync") is None
    assert "privacy" not in loaded.resolved("fedasync", 1, "digits")


def test_a_wrong_key_of_an_algorithm_is_named(experiment):
    with pytest.raises(OffbeatError, match=r"algorithms\.fedavg\.privacy.*clip_norm"):
        experiment("algorithms.fedavg={ privacy = { noise_multiplier = 0.5 } }")
