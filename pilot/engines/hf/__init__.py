"""What attaches to a Hugging Face ``Trainer``: it is built, watched, measured and put back here."""
