"""``python -m pilot``: see ``pilot/cli/main.py``. Nothing heavy is imported here."""

from __future__ import annotations

import sys

from pilot.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
