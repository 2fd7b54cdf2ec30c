"""The project on NVFlare: ``python nvflare_job.py`` simulates ten rounds."""

from pathlib import Path

import torch
from digits import SITES, Net, report
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv

recipe = FedAvgRecipe(name="digits", model=Net(), min_clients=SITES, num_rounds=10, train_script="nvflare_client.py")

if __name__ == "__main__":
    run = recipe.execute(SimEnv(num_clients=SITES))
    print(run.get_status(), run.get_result())
    (file,) = Path(run.get_result()).rglob("FL_global_model.pt")
    net = Net()
    net.load_state_dict(torch.load(file, weights_only=False)["model"])
    print(report(net))
