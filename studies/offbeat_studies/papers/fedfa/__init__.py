"""The experiments of FedFa's paper."""
