"""A Flower app on the handwritten digits."""
