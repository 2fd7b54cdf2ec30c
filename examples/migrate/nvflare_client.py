"""A site of the project on NVFlare, which ``nvflare_job.py`` starts."""

import nvflare.client as flare
from digits import Net, site_data, train

flare.init()
net = Net()
data = site_data(int(flare.get_site_name().removeprefix("site-")) - 1)
while flare.is_running():
    received = flare.receive()
    if received is None:
        break
    net.load_state_dict(received.params)
    train(net, data)
    flare.send(flare.FLModel(params=net.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": len(data)}))
