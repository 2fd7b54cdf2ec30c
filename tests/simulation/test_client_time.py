import pytest

from offbeat.algorithms import FedAvg
from offbeat.simulation.client_time import ClientTime
from offbeat.simulation.totals import Stop
from tests.simulation.conftest import one_by_one, resume, run


def test_clients_wait_for_the_slowest_of_their_round(simulate):
    # Rounds of both clients end every 4 s, and the run within the third: client 0 then has worked 1 s and waited 1 s.
    simulation = simulate(FedAvg(cohort=2), step_seconds=(1.0, 4.0), stop=Stop(virtual_seconds=10.0))
    run(simulation)
    time = simulation.client_time
    assert (time.clients, time.waiting_seconds, time.working_seconds) == (2, 3 + 3 + 1, 5 + 5 + 3)
    assert time.waiting_share == pytest.approx(7 / 20)


def test_a_client_that_is_offline_does_not_wait(simulate, intervals):
    # Client 0 works from 0 to 1 and has no work until 4, but is offline from 2 to 3. Client 1 works all the time,
    # and pauses from 1 to 2.
    availability = intervals([(0, 2), (3, 30)], [(0, 1), (2, 30)])
    simulation = simulate(
        FedAvg(cohort=2),
        step_seconds=(1.0, 3.0),
        availability=availability,
        stop=Stop(virtual_seconds=4.0),
        lease_seconds=100.0,
    )
    run(simulation)
    time = simulation.client_time
    assert (time.waiting_seconds, time.working_seconds) == (1 + 1, 1 + 4)


def test_nobody_waits_where_all_work_all_the_time(simulate):
    simulation = simulate(one_by_one(concurrency=4), stop=Stop(virtual_seconds=12.0))
    run(simulation)
    assert simulation.client_time == ClientTime(4, 0.0, 48.0)


def test_a_resumed_run_has_the_same_times(simulate, tmp_path):
    def fresh():
        return simulate(FedAvg(cohort=2), stop=Stop(virtual_seconds=20.0))

    whole = fresh()
    run(whole)
    first = fresh()
    while first.client_time.working_seconds < 9:
        first.step()
    second = resume(fresh(), first, tmp_path)
    run(second)
    assert second.client_time == whole.client_time
    assert whole.client_time.waiting_seconds + whole.client_time.working_seconds == pytest.approx(4 * 20)


def test_without_time_there_is_no_share():
    assert ClientTime(3).waiting_share is None
