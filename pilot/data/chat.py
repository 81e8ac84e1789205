"""From conversations to token ids and labels, through the tokenizer's own chat template.

What is supervised is found by comparing texts, turn by turn: the template's text up to an answer
(with the generation prompt) must be the beginning of its text including that answer; what comes on
top is the answer. That works with any template that does not rewrite earlier turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pilot.data.audit import IGNORED
from pilot.data.rows import ASSISTANT, SYSTEM, Conversation, Message
from pilot.errors import DataError

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Example:
    """One encoded row; ``labels`` are the ids where supervised, else -100. Same length, int64."""

    input_ids: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    source: str
    line: int


def encode(
    conversations: Sequence[Conversation],
    tokenizer: Any,
    path: Path,
    *,
    max_tokens: int | None = None,
    system: str | None = None,
) -> list[Example]:
    """Encode the rows of ``path``; answers are supervised with their end-of-turn token.

    Args:
        conversations: the rows.
        tokenizer: a fast Hugging Face tokenizer with a chat template.
        path: named in errors.
        max_tokens: longer rows are cut at the end, their answer perhaps wholly; None: none is.
        system: system message for rows that have none.

    Raises:
        DataError: the template refuses a row, or rewrites earlier turns of it.
    """
    if not (rendered := [_render(row, tokenizer, path, system) for row in conversations]):
        return []
    encoded = tokenizer(
        [text for text, _ in rendered],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
    )
    special = np.array(sorted(tokenizer.all_special_ids), dtype=np.int64)
    examples = []
    for row, (text, spans), values, pairs in zip(
        conversations, rendered, encoded["input_ids"], encoded["offset_mapping"], strict=True
    ):
        ids = np.array(values, dtype=np.int64)
        offsets = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        labels = _labels(ids, offsets, text, spans, special)[:max_tokens]
        examples.append(
            Example(input_ids=ids[:max_tokens], labels=labels, source=row.source, line=row.line)
        )
    return examples


def _render(
    row: Conversation, tokenizer: Any, path: Path, system: str | None
) -> tuple[str, list[Span]]:
    """The row's text in the template, and where in it the answers stand."""
    messages = row.messages
    if system and not any(message.role == SYSTEM for message in messages):
        messages = (Message(role=SYSTEM, content=system), *messages)
    turns = [{"role": message.role, "content": message.content} for message in messages]
    answers = [index for index, turn in enumerate(turns) if turn["role"] == ASSISTANT]
    try:
        text = _template(tokenizer, turns)
        spans: list[Span] = []
        for index in answers:
            prompt = _template(tokenizer, turns[:index], add_generation_prompt=True)
            last = index == len(turns) - 1
            until = text if last else _template(tokenizer, turns[: index + 1])
            if not (until.startswith(prompt) and text.startswith(until)):
                what = f"the chat template rewrites what stands before answer {len(spans) + 1}"
                remedy = "use a chat template whose text only grows from turn to turn"
                raise DataError(path, what, remedy=remedy, line=row.line)
            spans.append((len(prompt), len(until)))
    except DataError:
        raise
    except Exception as error:  # a template is a program: it raises what it likes
        what = f"the chat template refuses this row: {str(error)[:200]}"
        remedy = "repair the order of roles in this row, or give the model another chat template"
        raise DataError(path, what, remedy=remedy, line=row.line) from error
    return text, spans


def _template(
    tokenizer: Any, turns: list[dict[str, str]], *, add_generation_prompt: bool = False
) -> str:
    return str(
        tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=add_generation_prompt
        )
    )


def _labels(
    ids: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    text: str,
    spans: Iterable[Span],
    special: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """The ids inside the answers, -100 elsewhere.

    A token that holds characters of both prompt and answer belongs to the answer. White space that
    the template puts behind the end-of-turn token is nobody's answer.
    """
    labels = np.full_like(ids, IGNORED)
    starts, ends = offsets[:, 0], offsets[:, 1]
    for begin, end in spans:
        inside = np.flatnonzero((ends > begin) & (starts < end))
        closing = np.flatnonzero(np.isin(ids[inside], special))
        if len(closing) and text[ends[inside[closing[-1]]] : end].isspace():
            inside = inside[: closing[-1] + 1]
        labels[inside] = ids[inside]
    return labels
