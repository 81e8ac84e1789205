"""A tiny Llama's folder, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny_llama


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model and tokenizer; do not change it, copy it."""
    return tiny_llama.save(tmp_path_factory.mktemp("tiny_llama"))
