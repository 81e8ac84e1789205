"""Who owns the training loop. ``base.py`` is the contract; ``native.py`` is pilot's own loop."""

PARENT_PID = "PILOT_PARENT_PID"
"""Environment variable: the process whose death ends an arm."""
