"""From one parsed row of instruction data to a conversation: Alpaca and ShareGPT forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EXCERPT_CHARS = 60
"""No more of a row's text than this is ever shown (quotes and dots come on top)."""

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
_ROLES = {
    "system": SYSTEM,
    "user": USER,
    "human": USER,
    "assistant": ASSISTANT,
    "gpt": ASSISTANT,
    "model": ASSISTANT,
}
_FORMS = (
    "use Alpaca (instruction, input, output), ShareGPT (conversations: [{from, value}]) "
    "or messages: [{role, content}]"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One turn; ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """One row. ``line`` is its 1-based line (JSON lines) or row number (JSON list)."""

    messages: tuple[Message, ...]
    source: str
    line: int

    @property
    def answers(self) -> tuple[str, ...]:
        """The text of all assistant turns: what is learned."""
        return tuple(m.content for m in self.messages if m.role == ASSISTANT)


class RowProblem(Exception):
    """What is wrong with one row, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        """Both without the row's number, which the caller knows."""
        super().__init__(what)
        self.what, self.remedy = what, remedy


def excerpt(value: object) -> str:
    """At most ``EXCERPT_CHARS`` characters of a value, unprintable ones as escapes."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    shown = repr(text[:EXCERPT_CHARS])
    shown = shown if len(shown) <= EXCERPT_CHARS + 2 else shown[: EXCERPT_CHARS + 1] + shown[0]
    return shown + ("..." if len(text) > EXCERPT_CHARS else "")


def parse_row(row: Any, source: str, number: int) -> Conversation:
    """The conversation in one parsed row.

    Args:
        row: what the JSON parser gave.
        source: the source of rows that name none.
        number: 1-based line or row number, kept as ``line``.

    Raises:
        RowProblem: no form that is known, wrong types, an unknown role, no answer.
    """
    if not isinstance(row, Mapping):
        raise RowProblem(f"is {type_name(row)}, not an object", _FORMS)
    for key in ("conversations", "messages"):
        if key in row:
            messages = _turns(row, key)
            break
    else:
        messages = _alpaca(row)
    return Conversation(
        messages=tuple(messages),
        source=_text(row, "source", default=source).encode("utf-8", "replace").decode() or source,
        line=number,
    )


def _alpaca(row: Mapping[str, Any]) -> list[Message]:
    if "instruction" not in row:
        keys = excerpt(", ".join(row)) if row else "none"
        raise RowProblem(f"has no form that is known; its keys: {keys}", _FORMS)
    messages = _system(row)
    for index, pair in enumerate(_list(row, "history")):
        if not (isinstance(pair, list) and len(pair) == 2 and all(map(_is_text, pair))):
            remedy = "history is a list of [question, answer] pairs of text"
            raise RowProblem(f"history[{index}] is not a pair of texts", remedy)
        messages += [_message(USER, pair[0], "history"), _answer(pair[1], f"history[{index}]")]
    parts = [_text(row, "instruction"), _text(row, "input")]
    messages.append(_message(USER, "\n".join(part for part in parts if part), "instruction"))
    messages.append(_answer(_text(row, "output"), "output"))
    return messages


def _turns(row: Mapping[str, Any], key: str) -> list[Message]:
    role_key, text_key = ("from", "value") if key == "conversations" else ("role", "content")
    messages = _system(row)
    for index, turn in enumerate(_list(row, key)):
        place = f"{key}[{index}]"
        if not isinstance(turn, Mapping):
            raise RowProblem(f"{place} is {type_name(turn)}, not an object", _FORMS)
        tag = turn.get(role_key)
        role = _ROLES.get(tag.lower()) if isinstance(tag, str) else None
        if role is None:
            shown = excerpt(tag) if tag is not None else "missing"
            remedy = f"roles are: {', '.join(_ROLES)}"
            raise RowProblem(f"{place}.{role_key} is {shown}: unknown role", remedy)
        text = _text(turn, text_key, place=f"{place}.{text_key}")
        place = f"{place}.{text_key}"
        messages.append(_answer(text, place) if role == ASSISTANT else _message(role, text, place))
    if not any(message.role == ASSISTANT for message in messages):
        raise RowProblem("has no answer: no assistant turn", "add the answer, or remove the row")
    return messages


def _system(row: Mapping[str, Any]) -> list[Message]:
    text = _text(row, "system")
    return [_message(SYSTEM, text, "system")] if text else []


def _answer(text: str, place: str) -> Message:
    if not text.strip():
        raise RowProblem(f"has no answer: {place} is empty", "add the answer, or remove the row")
    return _message(ASSISTANT, text, place)


def _message(role: str, text: str, place: str) -> Message:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # "\ud83d" alone is legal JSON and no text
        what = f"{place} has half a surrogate pair ({ascii(text[error.start])[1:-1]})"
        raise RowProblem(what, "repair the escape sequence in the text") from None
    return Message(role=role, content=text)


def _text(row: Mapping[str, Any], key: str, *, place: str = "", default: str = "") -> str:
    value = row.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise RowProblem(f"{place or key} is {type_name(value)}, not text", "give text in quotes")
    return value


def _list(row: Mapping[str, Any], key: str) -> list[Any]:
    value = row.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RowProblem(f"{key} is {type_name(value)}, not a list", _FORMS)
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def type_name(value: object) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text"}
    return names.get(type(value), "a list" if isinstance(value, list) else "an object")
