from papers.figures.figure_file import load
from tests.papers.conftest import FIGURE, PANELS


def test_the_fingerprint_depends_on_settings_claims_and_compared_panels(experiments):
    path = experiments / "paper" / "fig1.toml"

    def fingerprints(before="", after=""):
        assert before in PANELS
        path.write_text(FIGURE + PANELS.replace(before, after), encoding="utf-8")
        few, many = load(path)
        return few.fingerprint("quick"), many.fingerprint("quick")

    few, many = fingerprints()
    assert fingerprints("tolerance = 0.9", "tolerance = 0.9\nfactor = 1.0") == (few, many)
    assert fingerprints("With few.", "With hardly any.") == (few, many)
    # The claim that compares is none of the panel's that it is compared with.
    few_now, many_now = fingerprints("tolerance = 0.9", "tolerance = 0.8")
    assert few_now == few
    assert many_now != many
    few_now, many_now = fingerprints("population.clients=5", "population.clients=6")
    assert few_now != few
    assert many_now != many
