"""A Flower app that does the work of Offbeat in ``benchmarks/service.py``.

It takes updates in, ten of which make a model. No client gets the model or trains, so that only the way of updates to
the server and into a model is measured. The ServerApp asks a client again as soon as it has the client's update, and so
does not wait for the others: that is faster than FedAvg's rounds, which look for answers every three seconds.
"""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

BUFFER_SIZE = 10
LOOK_SECONDS = 0.05

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def answer(message: Message, context: Context) -> Message:
    """Return an update that no other client sends; equal ones would travel once."""
    length = message.content["config"]["length"]
    update = np.full(int(length), 1e-3 * (1 + message.metadata.dst_node_id % 1009), np.float32)
    return Message(RecordDict({"update": ArrayRecord([update])}), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Take so many updates in, and write when each was added."""
    config = context.run_config
    clients, updates, length = (int(config[key]) for key in ("clients", "updates", "length"))
    while len(nodes := list(grid.get_node_ids())) < clients:
        time.sleep(LOOK_SECONDS)

    def ask(node: int) -> Message:
        content = RecordDict({"config": ConfigRecord({"length": length})})
        return Message(content, dst_node_id=node, message_type="train")

    model, total = np.zeros(length, np.float32), np.zeros(length, np.float32)
    times: list[float] = []
    waiting = set(grid.push_messages([ask(node) for node in nodes[:clients]]))
    while len(times) < updates:
        came = list(grid.pull_messages(list(waiting)))
        if not came:
            time.sleep(LOOK_SECONDS)
        for message in came:
            waiting.discard(message.metadata.reply_to_message_id)
            total += message.content["update"].to_numpy_ndarrays()[0]
            times.append(time.time())
            if not len(times) % BUFFER_SIZE:
                model -= total / BUFFER_SIZE
                total[:] = 0
            waiting |= set(grid.push_messages([ask(message.metadata.src_node_id)]))
    result = Path(str(config["result"]))
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(times))
    partial.rename(result)
