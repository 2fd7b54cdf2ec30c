"""The clients, as in Flower's quickstart: nothing here knows of Offbeat."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import load_data, make_model
from digits_app.task import train as train_model

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model on the node's partition."""
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    node, settings = context.node_config, context.run_config
    batches = load_data(node["partition-id"], node["num-partitions"], settings["batch-size"])
    loss = train_model(model, batches, settings["local-epochs"], message.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(batches.dataset)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
