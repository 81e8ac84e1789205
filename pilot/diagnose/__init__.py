"""``python -m pilot diagnose``: what happened in a log, how sure that is, what to test."""
