import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from offbeat_core.local_plan import LocalPlan

from offbeat.flower.records import ReplyError, plan_config, read_trained, train_content

PLAN = LocalPlan(steps=2, batch_size=4, lr=0.5, mu=0.1)
MODEL = {"weight": np.ones((2, 2), np.float32), "bias": np.zeros(2, np.float32)}
SHAPES = {name: array.shape for name, array in MODEL.items()}


def content(arrays=None, *more, **metrics):
    arrays = MODEL if arrays is None else arrays
    record = arrays if isinstance(arrays, ArrayRecord) else ArrayRecord({n: Array(a) for n, a in arrays.items()})
    records = {"arrays": record, "metrics": MetricRecord({"num-examples": 7, **metrics})}
    return RecordDict({**records, **{str(number): each for number, each in enumerate(more)}})


@pytest.mark.parametrize(
    ("client_fn", "names"), [(False, {"arrays", "config"}), (True, {"fitins.parameters", "fitins.config"})]
)
def test_a_message_has_the_model_in_order_and_the_plan(client_fn, names):
    sent = train_content(MODEL, PLAN, 3, client_fn=client_fn)
    assert set(sent) == names
    (arrays,), (config,) = sent.array_records.values(), sent.config_records.values()
    assert [(name, array.numpy().tolist()) for name, array in arrays.items()] == [
        ("weight", [[1, 1], [1, 1]]),
        ("bias", [0, 0]),
    ]
    assert (config["lr"], config["batch-size"], config["local-steps"], config["server-round"]) == (0.5, 4, 2, 4)


def test_the_plan_has_the_names_of_flower():
    assert plan_config(PLAN, 0)["proximal-mu"] == 0.1
    assert "clip-norm" not in plan_config(PLAN, 0)
    schedule = LocalPlan(steps=2, batch_size=1, lr=(0.5, 0.25), clip_norm=2.0)
    assert plan_config(schedule, 0)["lr"] == [0.5, 0.25]
    assert plan_config(schedule, 0)["clip-norm"] == 2.0
    ConfigRecord(plan_config(schedule, 0))


def test_a_result_has_arrays_examples_and_loss():
    trained = read_trained(content(train_loss=0.5), MODEL, SHAPES)
    assert trained.arrays["weight"].tolist() == [[1, 1], [1, 1]]
    assert (trained.examples, trained.loss) == (7, 0.5)
    assert read_trained(content(), MODEL, SHAPES).loss is None
    assert read_trained(content(loss=float("nan")), MODEL, SHAPES).loss is None


def test_without_names_the_order_is_that_of_the_message():
    arrays = ArrayRecord([np.full((2, 2), 3.0), np.full(2, 4.0)])
    trained = read_trained(content(arrays), MODEL, SHAPES)
    assert {name: array.ravel()[0] for name, array in trained.arrays.items()} == {"weight": 3, "bias": 4}


BROKEN = Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=b"broken")
ZIP = Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=b"PK\x05\x06" + bytes(18))
HUGE = Array(
    dtype="float32",
    shape=(2,),
    stype="numpy.ndarray",
    data=b"\x93NUMPY\x01\x00\x76\x00"
    + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000,), }".ljust(117)
    + b"\n",
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (RecordDict(), "must have one ArrayRecord, it has 0"),
        (content(None, ArrayRecord()), "must have one ArrayRecord, it has 2"),
        (content({"weight": MODEL["weight"]}), r"needs bias as an array of shape \(2,\), got none"),
        (content({**MODEL, "bias": np.zeros(3)}), r"needs bias as an array of shape \(2,\), got shape \(3,\)"),
        (content({**MODEL, "bias": np.array(["a", "b"])}), "bias of the app's reply has numbers of type <U1"),
        (content(ArrayRecord({"weight": Array(MODEL["weight"]), "bias": BROKEN})), "bias .* is not an array"),
        (content(ArrayRecord({"weight": Array(MODEL["weight"]), "bias": ZIP})), "bias .* is not an array"),
        (content(ArrayRecord({"weight": Array(MODEL["weight"]), "bias": HUGE})), "bias .* is not an array"),
        (content(**{"num-examples": 0}), "num-examples, a whole number in 1 … 2147483647, got 0"),
        (content(**{"num-examples": 1.5}), "got 1.5"),
        (content(**{"num-examples": [1, 2]}), "got none"),
        (content(**{"num-examples": 2**40}), "got 1099511627776"),
    ],
)
def test_what_is_no_result_is_refused(given, message):
    with pytest.raises(ReplyError, match=message):
        read_trained(given, MODEL, SHAPES)
