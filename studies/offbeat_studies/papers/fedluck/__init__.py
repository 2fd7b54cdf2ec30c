"""The experiments of FedLuck's paper."""
