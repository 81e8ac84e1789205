"""pilot: may this training run start as it is, and if not, which change makes it safe?"""

__version__ = "0.1.0"
