"""Names of metrics, for modules that need no torch."""

TRAINING_LOSS = "training_loss"
"""The loss on the training set."""
