"""Where an arm runs. A launcher only has to run ``python -m pilot arm DIR``."""
