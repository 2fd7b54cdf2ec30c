"""A site of a server: the project's own training in a function.

offbeat join https://host:8443 --token-file enrolment-token --ca ca.pem --client client.py:make_client
"""

from digits import Net, site_data, train

from offbeat.client import Visit


def make_client(number: int):
    """Return the function that trains as the site with this number."""
    data = site_data(number)

    def fit(model, visit: Visit):
        net = Net()
        net.load_state_dict(model)
        train(net, data, visit.plan.lr)
        return net.state_dict(), len(data)

    return fit
