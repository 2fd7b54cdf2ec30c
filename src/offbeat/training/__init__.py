"""Models, losses, local training and evaluation."""
