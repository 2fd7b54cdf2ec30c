"""The experiments of AsyncCommSGD's paper."""
