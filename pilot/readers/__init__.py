"""The logs of other trainers, read into traces."""
