"""The project on APPFL: ``python appfl_run.py`` simulates ten rounds of FedAvg."""

import logging

from appfl.agent import ClientAgent, ServerAgent
from appfl.vsim import ClientProfile, SyncSimDriver
from digits import SITES, report
from omegaconf import OmegaConf

if __name__ == "__main__":
    server = ServerAgent(OmegaConf.load("appfl_server.yaml"))
    clients = []
    for number in range(SITES):
        own = {"client_id": number, "data_configs": {"dataset_kwargs": {"number": number}}}
        client = ClientAgent(OmegaConf.merge(OmegaConf.load("appfl_client.yaml"), own))
        client.load_config(server.get_client_configs())
        server.set_sample_size(client.get_id(), client.get_sample_size())
        clients.append(client)
    profiles = {client.get_id(): ClientProfile() for client in clients}
    SyncSimDriver(server, clients, profiles, SITES, logging.getLogger("project"), target_rounds=10).run()
    print(report(server.model))
