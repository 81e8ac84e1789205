"""Hides what looks like a secret before anything leaves for a tracking server or a screen.

Two rules: the *key* says that the value is a secret (``hub_token``, ``api_key``), or the *value*
has the shape of one (``hf_...``, ``sk-...``, ``user:password@host``). Both err on the side of
hiding; names of tokenizer tokens (``pad_token``) are exempt: the word has another meaning there.
"""

from __future__ import annotations

import re
from pathlib import Path

HIDDEN = "<hidden>"

_SECRET_WORDS = frozenset(
    ("token", "secret", "secrets", "password", "passwd", "passphrase", "pwd", "apikey")
    + ("credential", "credentials")
)
_SECRET_PAIRS = ("api_key", "access_key", "private_key", "secret_key", "auth_key", "account_key")
_TOKENIZER_WORDS = frozenset(
    ("pad", "eos", "bos", "unk", "mask", "sep", "cls", "image", "audio", "special", "response")
)

_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{8,}|gh[oprsu]_[A-Za-z0-9]{16,}"
    r"|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|dapi[0-9a-f]{32}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_OPTION = re.compile(r"""(--([A-Za-z][\w-]*)(?:=|["']?\s*,\s*["']?|\s+))(?!-)[^\s"',\]]+""")
_USER_INFO = re.compile(r"(?<=://)[^/?#\s@\\]+(?=@)")
_QUERY = re.compile(
    r"([?&][\w.-]*(?:token|secret|passw|pwd|key|sig|signature|credential)[\w.-]*=)[^&\s#'\"\\]+",
    re.I,
)
_ASSIGNED = re.compile(
    r"\b(\w*(?:token|secret|password|passwd|api_?key)\s*[=:]\s*)(?!<)([^\s,;'\"\\]{6,})", re.I
)


def hide_text(text: str) -> str:
    """``text`` with everything that has the shape of a secret replaced by ``<hidden>``.

    That is also the word behind an option of a command line that is called like one.
    """
    text = _OPTION.sub(_hide_option, text)
    text = _USER_INFO.sub(HIDDEN, text)
    return _SHAPES.sub(HIDDEN, _QUERY.sub(rf"\1{HIDDEN}", text))


def _hide_option(match: re.Match[str]) -> str:
    name = match[2].replace("-", "_")
    return match[1] + HIDDEN if is_secret_key(name) else match[0]


def hide_message(text: str) -> str:
    """``hide_text`` for free text such as an error message: also ``password=...``."""
    return _ASSIGNED.sub(rf"\1{HIDDEN}", hide_text(text))


def last_lines(log: Path, count: int = 8) -> list[str]:
    """The last printable lines of a log, secrets hidden; none where it cannot be read."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    shown = "".join(c if c.isprintable() or c == "\n" else " " for c in hide_message(text))
    return shown.strip().splitlines()[-count:]


def is_secret_key(key: str) -> bool:
    """Whether any part of a dotted key says that its value is a secret."""
    return any(_is_secret_part(part) for part in key.split("."))


def _is_secret_part(part: str) -> bool:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part).lower().replace("-", "_")
    words = [word for word in snake.split("_") if word]
    if set(words) & _TOKENIZER_WORDS and "token" in words:
        return False
    padded = f"_{'_'.join(words)}_"
    return bool(set(words) & _SECRET_WORDS) or any(f"_{p}_" in padded for p in _SECRET_PAIRS)
