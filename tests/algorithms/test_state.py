from offbeat.algorithms.state import prefixed, under


def test_parts_go_into_a_flat_dict_and_come_out_again():
    flat = {"version": 3, **prefixed("sum", {"total": 1}), **prefixed("step", {"total": 2, "exp.avg": 4})}
    assert flat == {"version": 3, "sum.total": 1, "step.total": 2, "step.exp.avg": 4}
    assert under("sum", flat) == {"total": 1}
    assert under("step", flat) == {"total": 2, "exp.avg": 4}


def test_a_key_that_only_begins_alike_belongs_to_nobody():
    assert under("step", {"steps": 1, "step": 2, "steps.a": 3, "my.step.a": 4}) == {}
