"""Measurements that need the model outside of a run; each yields evidence, none judges."""
