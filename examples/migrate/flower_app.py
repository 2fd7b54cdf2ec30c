"""The project on Flower: ``python flower_app.py`` simulates ten rounds of FedAvg."""

from digits import SITES, Net, report, site_data, train
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def fit(message: Message, context: Context) -> Message:
    """Train on the node's examples."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data = site_data(context.node_config["partition-id"])
    train(net, data, message.content["config"]["lr"])
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(data)})}
    return Message(RecordDict(content), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the strategy."""
    net = Net()
    result = FedAvg(fraction_evaluate=0.0).start(
        grid, ArrayRecord(net.state_dict()), num_rounds=10, train_config=ConfigRecord({"lr": 0.05})
    )
    net.load_state_dict(result.arrays.to_torch_state_dict())
    print(report(net))


if __name__ == "__main__":
    run_simulation(server_app, client_app, num_supernodes=SITES)
