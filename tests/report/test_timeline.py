"""Figure of the visits."""

from offbeat.report.timeline import timeline
from tests.report.example_runs import a_run, draw


def bars(axes):
    """Return the bars of a panel as {outcome: [(begin, end, row)]}."""
    return {
        collection.get_label(): [(begin, end, row) for (begin, row), (end, _) in collection.get_segments()]
        for collection in axes.collections
    }


def test_puts_the_fastest_client_first():
    a = [
        (7, 0, 0.0, 40.0, "counted"),
        (3, 0, 0.0, 10.0, "counted"),
        (3, 1, 10.0, 20.0, "unused"),
        (5, None, 0.0, 1.0, "lost"),  # always lost: its speed is unknown
    ]
    b = [(4, 0, 5.0, 25.0, "counted")]
    figure = draw(timeline([a_run("a", visits=a), a_run("b", visits=b), a_run("c")]))
    panels = figure.axes
    assert bars(panels[0]) == {
        "counted": [(0.0, 40.0, 2), (0.0, 10.0, 0)],
        "unused": [(10.0, 20.0, 0)],
        "lost": [(0.0, 1.0, 3)],
    }
    assert bars(panels[1])["counted"] == [(5.0, 25.0, 1)]  # the rows are the same in all panels
    assert bars(panels[2]) == {"counted": [], "unused": [], "lost": []}
    assert panels[2].get_xlabel() == "virtual time (seconds)"
    assert panels[2].get_xlim() == (0, 40)
    assert figure.get_supylabel() == "clients"
    colours = {tuple(collection.get_colors()[0]) for collection in panels[0].collections}
    assert len(colours) == 3


def test_shows_the_first_seed():
    runs = [a_run("a", seed, visits=[(seed, 0, 0.0, 10.0 + seed, "counted")]) for seed in (1, 0)]
    (axes,) = timeline(runs).axes
    assert bars(axes)["counted"] == [(0.0, 11.0, 0)]


def test_ends_early_with_too_many_bars():
    visits = [(c, 0, 100.0 * i, 100.0 * i + 90, "counted") for i in range(40) for c in range(80)]
    (axes,) = draw(timeline([a_run("a", visits=visits)])).axes
    drawn = bars(axes)["counted"]
    assert len(drawn) == 18 * 80  # 1,500 begin before 1,800 s
    assert max(end for _, end, _ in drawn) <= axes.get_xlim()[1] == 30
    assert axes.get_xlabel() == "virtual time (minutes; the first 30 min of 1 h 6 min)"


def test_ends_before_bars_are_too_short_to_see():
    visits = [(0, 0, 1000.0 * i, 1000.0 * i + 2, "counted") for i in range(9)]
    figure = draw(timeline([a_run("a", visits=visits)]))
    assert figure.axes[0].get_xlim() == (0, 120)
    assert bars(figure.axes[0])["counted"] == [(0.0, 2.0, 0)]


def test_leaves_out_clients_evenly():
    visits = [(c, 0, 0.0, 100.0 + c, "counted") for c in range(1999)]
    figure = draw(timeline([a_run("a", visits=visits)]))
    drawn = bars(figure.axes[0])["counted"]
    assert len(drawn) == 100
    assert figure.get_supylabel() == "100 of 1,999 clients"
    assert [row for *_, row in drawn] == list(range(100))


def test_begins_with_the_first_visit():
    visits = [(0, 0, 3600.0 + 1000 * i, 3600.0 + 1000 * i + 2, "counted") for i in range(9)]
    (axes,) = draw(timeline([a_run("a", visits=visits)])).axes
    assert bars(axes)["counted"] == [(0.0, 2.0, 0)]
    assert axes.get_xlim() == (0, 120)
    assert axes.get_xlabel() == "virtual time since the first visit, at 1 h (seconds; the first 2 min of 2 h 13 min)"


def test_has_room_for_visits_of_slow_worlds():
    fast = [(0, 0, 10.0 * i, 10.0 * i + 10, "counted") for i in range(2000)]
    slow = [(1, 0, 100 + 1000.0 * i, 1100 + 1000.0 * i, "counted") for i in range(20)]
    figure = draw(timeline([a_run("fast", visits=fast), a_run("slow", visits=slow)]))
    assert figure.axes[1].get_xlim() == (0, 85)  # minutes: 100 s and five visits of 1,000 s
    assert len(bars(figure.axes[1])["counted"]) == 5
    # Room for the slow ones ends where the fast ones are too many: after 6,000 bars in all.
    very_fast = [(0, 0, float(i), i + 1.0, "counted") for i in range(9000)]
    very_slow = [(1, 0, 9000.0 * i, 9000.0 * (i + 1), "counted") for i in range(2)]
    figure = timeline([a_run("fast", visits=very_fast), a_run("slow", visits=very_slow)])
    assert [len(bars(axes)["counted"]) for axes in figure.axes] == [5999, 1]


def test_of_runs_without_visits():
    draw(timeline([a_run("a")]))
