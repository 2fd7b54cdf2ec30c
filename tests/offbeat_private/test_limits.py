import math

import pytest
from offbeat_private.limits import check_scale, check_schedule, most_at_work

from tests.error_line import error_line

POSSIBLE = {"clients": 1000, "participations": 10, "separation": 50, "buffer": 10, "versions": 1000}


def line_of(**changes: int) -> str:
    return error_line(lambda: check_schedule(**POSSIBLE | changes))


def test_what_is_just_possible() -> None:
    check_schedule(**POSSIBLE)  # 1,000 versions of 10 take all 10,000 participations
    check_schedule(**POSSIBLE, concurrency=500)
    check_schedule(**POSSIBLE | {"separation": 99}, concurrency=10)
    assert most_at_work(clients=1000, separation=50, buffer=10) == 500


def test_more_versions_than_participations() -> None:
    line = line_of(versions=1001)
    assert line == (
        "1,001 versions × 10 clients are more than the 10,000 participations of 1,000 clients × 10: "
        "lower the versions to 1,000 or raise the participations to 11"
    )
    assert "raise the participations to 4" in line_of(clients=2500, participations=3)
    check_schedule(**POSSIBLE | {"versions": 1001, "participations": 11})


def test_more_waiting_clients_than_there_are() -> None:
    assert line_of(concurrency=501) == (
        "500 clients must wait (10 a version, for 50 versions) and 501 must work, but there are 1,000: "
        "lower the separation to 49 or raise the clients to 1,001"
    )
    check_schedule(**POSSIBLE | {"separation": 49}, concurrency=501)
    check_schedule(**POSSIBLE | {"clients": 1001}, concurrency=501)
    with pytest.raises(Exception, match="lower the separation to 99 "):
        check_schedule(**POSSIBLE | {"separation": 100})


def test_one_is_singular() -> None:
    assert line_of(clients=10, separation=1, versions=1, participations=1) == (
        "10 clients must wait (10 a version, for 1 version) and 1 must work, but there are 10: "
        "lower the buffer or raise the clients to 11"
    )
    assert line_of(clients=1, buffer=2, versions=1, participations=1).startswith(
        "1 version × 2 clients are more than the 1 participation of 1 client × 1: "
    )


def test_no_separation_is_short_enough_and_no_version_is_possible() -> None:
    assert "lower the buffer or raise the clients to 1,495" in line_of(concurrency=995)
    assert "lower the versions" not in line_of(clients=2, participations=1)


@pytest.mark.parametrize("scale", [0.1249, 1.0001, math.nan])
def test_a_scale_is_an_eighth_to_one(scale):
    check_scale(0.125)
    check_scale(1.0)
    with pytest.raises(ValueError, match=r"scale must be in 0\.125 … 1, got"):
        check_scale(scale)
