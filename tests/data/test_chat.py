from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from pilot.data.audit import IGNORED
from pilot.data.chat import Example, encode
from pilot.data.rows import Conversation, Message
from pilot.errors import DataError
from tests.tiny_llama import tokenizer

PATH = Path("data.jsonl")


def talk(*turns: tuple[str, str], line: int = 1) -> Conversation:
    messages = tuple(Message(role=role, content=text) for role, text in turns)
    return Conversation(messages=messages, source="src", line=line)


def one(row: Conversation, tok: Any = None, **more: Any) -> Example:
    (example,) = encode([row], tok or tokenizer(), PATH, **more)
    return example


def with_template(template: str) -> Any:
    changed = copy.deepcopy(tokenizer())
    changed.chat_template = template
    return changed


def tokens(example: Example) -> list[str]:
    return [tokenizer().decode([i]) for i in example.input_ids]


def supervised(example: Example) -> str:
    """The text of what is learned; labels must equal the inputs there."""
    kept = example.labels != IGNORED
    assert (example.labels[kept] == example.input_ids[kept]).all()
    return str(tokenizer().decode(example.labels[kept].tolist()))


def test_masks_token_by_token() -> None:
    example = one(talk(("user", "ab"), ("assistant", "xy")))
    assert tokens(example) == [
        "<s>", "<|user|>", "\n", "a", "b", "\n", "<|assistant|>", "\n", "x", "y", "</s>", "\n",
    ]  # fmt: skip
    ids = example.input_ids.tolist()
    assert example.labels.tolist() == [IGNORED] * 8 + ids[8:11] + [IGNORED]
    assert (example.source, example.line) == ("src", 1)


def test_every_answer_of_several_turns_is_supervised() -> None:
    row = talk(
        ("system", "be kind"),
        ("user", "one"),
        ("assistant", "first"),
        ("user", "two"),
        ("assistant", "second"),
        ("user", "left over"),
    )
    example = one(row)
    assert supervised(example) == "first</s>second</s>"
    assert "left over" in tokenizer().decode(example.input_ids)


def test_ids_are_those_of_the_whole_text() -> None:
    row = talk(("user", "What is the mean?"), ("assistant", "Return the mean of data."))
    turns = [{"role": m.role, "content": m.content} for m in row.messages]
    text = tokenizer().apply_chat_template(turns, tokenize=False)
    assert one(row).input_ids.tolist() == tokenizer()(text, add_special_tokens=False)["input_ids"]
    assert tokens(one(row)).count("<s>") == 1


@pytest.mark.parametrize(
    "text",
    ["👩‍👩‍👧 ok", "\u200bzero\u200b", "[bold]x[/bold] {{ 7*7 }}", "  spaced  ", "\n\nlines\n", "é"],
)
def test_unusual_text_survives(text: str) -> None:
    assert supervised(one(talk(("user", text), ("assistant", text)))) == text + "</s>"


def test_a_token_across_the_border_belongs_to_the_answer() -> None:
    tok = with_template(
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] + eos_token }}"
        "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
    )
    example = one(talk(("user", "x o"), ("assistant", "f z")), tok)
    assert tokens(example)[:3] == ["x", " of", " "]  # one token holds "o" and "f"
    assert supervised(example) == " of z</s>"


def test_system_message_is_for_rows_without_one() -> None:
    plain, own = (
        talk(("user", "a"), ("assistant", "b")),
        talk(("system", "mine"), ("user", "a"), ("assistant", "b")),
    )
    first, second = encode([plain, own], tokenizer(), PATH, system="yours")
    assert "yours" in tokenizer().decode(first.input_ids)
    assert "yours" not in tokenizer().decode(second.input_ids)
    assert supervised(first) == supervised(second) == "b</s>"


def test_cutting_keeps_the_beginning() -> None:
    row = talk(("user", "question"), ("assistant", "a long answer that goes on"))
    whole, cut, gone = one(row), one(row, max_tokens=14), one(row, max_tokens=3)
    assert cut.input_ids.tolist() == whole.input_ids[:14].tolist()
    assert cut.labels.tolist() == whole.labels[:14].tolist()
    assert 0 < (cut.labels != IGNORED).sum() < (whole.labels != IGNORED).sum()
    assert (gone.labels == IGNORED).all()
    assert len(gone.input_ids) == 3


def test_a_template_that_rewrites_history_is_refused() -> None:
    tok = with_template(
        "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% if loop.last %}{{ m['content'] }}"
        "{% endif %}{% endfor %}"
    )
    with pytest.raises(DataError) as caught:
        encode([talk(("user", "a"), ("assistant", "b"), line=41)], tok, PATH)
    assert "data.jsonl:41: the chat template rewrites what stands before" in str(caught.value)


def test_a_generation_prompt_that_the_answer_does_not_follow_is_refused() -> None:
    tok = with_template(
        "{% for m in messages %}{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    with pytest.raises(DataError, match="rewrites what stands before answer 1"):
        one(talk(("user", "a"), ("assistant", "b")), tok)


def test_a_template_that_refuses_a_row_names_it() -> None:
    tok = with_template("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(DataError, match=r"data.jsonl:7: .*refuses this row: roles must alternate"):
        one(talk(("user", "a"), ("assistant", "b"), line=7), tok)


def test_no_rows() -> None:
    assert encode([], tokenizer(), PATH) == []
