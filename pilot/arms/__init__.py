"""The arms around a baseline: which there are, their price, their start, when they run."""
