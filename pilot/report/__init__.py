"""Projections for people: the terminal, the report and its figures."""
