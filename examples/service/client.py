"""A client of the service, on its share of the handwritten digits.

It trains softmax regression.

    offbeat join https://host:8443 --token-file enrolment-token --client examples/service/client.py:make_client

A client needs only ``fit``, or a function that does the same; here it is the built-in one. Data of your own are two
tensors, or two numpy arrays: ``LocalSGD(model, cross_entropy, (inputs, labels))``.
"""

from torch.nn.functional import cross_entropy

from offbeat.client import LocalSGD
from offbeat.data.catalogue import load_dataset
from offbeat.training.models import softmax_regression

CLIENTS = 10  # that the digits are dealt out to; further ones get the same shares again


def make_client(client: int) -> LocalSGD:
    """Return the client with this number, which the server gave it when it enrolled."""
    digits = load_dataset("digits")
    share = slice(client % CLIENTS, None, CLIENTS)
    model = softmax_regression(digits.input_shape, classes=10)
    return LocalSGD(model, cross_entropy, (digits.train_inputs[share], digits.train_labels[share]))
