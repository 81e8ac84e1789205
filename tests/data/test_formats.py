from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pilot.data.formats import MAX_PROBLEMS, read_conversations
from pilot.data.rows import Message, excerpt
from pilot.errors import DataError

GOOD = {"instruction": "Name a colour.", "input": "", "output": "Blue."}


def write(path: Path, *rows: Any) -> Path:
    """JSON lines; strings are written as they are."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def error_of(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_conversations(path)
    return str(caught.value)


def turns(row: dict[str, Any], tmp_path: Path) -> list[tuple[str, str]]:
    (conversation,) = read_conversations(write(tmp_path / "one.jsonl", row))
    return [(m.role, m.content) for m in conversation.messages]


def test_alpaca(tmp_path: Path) -> None:
    row = {**GOOD, "input": "Not red.", "system": "Be brief.", "history": [["Hi", "Hello"]]}
    assert turns(row, tmp_path) == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("user", "Name a colour.\nNot red."),
        ("assistant", "Blue."),
    ]


def test_alpaca_without_optional_keys(tmp_path: Path) -> None:
    row = {"instruction": "a", "output": "b", "input": None, "history": None, "system": None}
    assert turns(row, tmp_path) == [("user", "a"), ("assistant", "b")]


def test_sharegpt_and_messages_agree(tmp_path: Path) -> None:
    share = {
        "conversations": [
            {"from": "system", "value": "s"},
            {"from": "human", "value": "a"},
            {"from": "gpt", "value": "b"},
            {"from": "human", "value": "c"},
            {"from": "gpt", "value": "d"},
        ]
    }
    roles = {"system": "system", "human": "user", "gpt": "assistant"}
    openai = {
        "messages": [
            {"role": roles[t["from"]], "content": t["value"]} for t in share["conversations"]
        ]
    }
    assert turns(share, tmp_path) == turns(openai, tmp_path)
    assert turns(share, tmp_path)[0] == ("system", "s")
    assert len(turns(share, tmp_path)) == 5


def test_json_jsonl_and_gz_give_the_same_rows(tmp_path: Path) -> None:
    rows = [GOOD, {**GOOD, "output": "Green."}]
    as_list = tmp_path / "data.json"
    as_list.write_text(json.dumps(rows), encoding="utf-8")
    lines = write(tmp_path / "data.jsonl", *rows)
    packed = [tmp_path / "data.json.gz", tmp_path / "data.jsonl.gz"]
    for source, target in zip((as_list, lines), packed, strict=True):
        target.write_bytes(gzip.compress(source.read_bytes()))
    found = [read_conversations(path) for path in (as_list, lines, *packed)]
    assert found[0] == found[1] == found[2] == found[3]
    assert [row.source for row in found[3]] == ["data", "data"]


def test_source_of_a_row_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "my.v2.jsonl", {**GOOD, "source": "wiki"}, GOOD, {**GOOD, "source": ""})
    assert [row.source for row in read_conversations(path)] == ["wiki", "my.v2", "my.v2"]


def test_line_counts_blank_lines_and_ignores_unicode_line_ends(tmp_path: Path) -> None:
    row = json.dumps({**GOOD, "output": "a\u2028b\x85c"}, ensure_ascii=False)
    path = write(tmp_path / "a.jsonl", row, "", GOOD)
    found = read_conversations(path)
    assert [conversation.line for conversation in found] == [1, 3]
    assert found[0].answers == ("a\u2028b\x85c",)


def test_text_is_kept_exactly(tmp_path: Path) -> None:
    text = "👩‍👩‍👧 \u200bzero\u200b [bold]markup[/bold] <|user|> \t\r\n end "
    assert turns({**GOOD, "output": text}, tmp_path)[-1] == ("assistant", text)


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + (json.dumps(GOOD) + "\r\n").encode() * 2)
    assert len(read_conversations(path)) == 2


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"instruction": "a", "output": ""}, "has no answer: output is empty"),
        ({"instruction": "a", "output": " \n"}, "has no answer: output is empty"),
        ({"instruction": "a"}, "has no answer: output is empty"),
        ({"instruction": "a", "output": None}, "has no answer: output is empty"),
        ({"instruction": "a", "output": 3}, "output is a number, not text"),
        ({"instruction": ["a"], "output": "b"}, "instruction is a list, not text"),
        ({"instruction": "a", "input": {}, "output": "b"}, "input is an object, not text"),
        ({"instruction": "a", "output": "b", "source": 1}, "source is a number, not text"),
        ({"instruction": "a", "output": "b", "history": "x"}, "history is text, not a list"),
        ({"instruction": "a", "output": "b", "history": [["x"]]}, "history[0] is not a pair"),
        ({"instruction": "a", "output": "b", "history": [["x", ""]]}, "history[0] is empty"),
        ({"text": "hello"}, "has no form that is known; its keys: 'text'"),
        ({}, "has no form that is known; its keys: none"),
        ([1, 2], "is a list, not an object"),
        (None, "is null, not an object"),
        (True, "is true or false, not an object"),
        ({"conversations": []}, "has no answer: no assistant turn"),
        ({"conversations": None}, "has no answer: no assistant turn"),
        ({"conversations": "x"}, "conversations is text, not a list"),
        ({"conversations": ["x"]}, "conversations[0] is text, not an object"),
        ({"conversations": [{"from": "human", "value": "a"}]}, "no assistant turn"),
        ({"conversations": [{"from": "gpt", "value": ""}]}, "conversations[0].value is empty"),
        ({"conversations": [{"from": "bard", "value": "a"}]}, "from is 'bard': unknown role"),
        ({"conversations": [{"value": "a"}]}, "from is missing: unknown role"),
        ({"conversations": [{"from": ["gpt"], "value": "a"}]}, "unknown role"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "role is 'tool': unknown role"),
        ({"messages": [{"role": "assistant", "content": []}]}, "messages[0].content is a list"),
        ({"instruction": "a", "output": "\ud83d"}, r"half a surrogate pair (\ud83d)"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: Any, what: str) -> None:
    text = error_of(write(tmp_path / "bad.jsonl", GOOD, row))
    assert f"{tmp_path / 'bad.jsonl'}:2: " in text
    assert what in text
    assert "remedy: " in text
    as_list = tmp_path / "bad.json"
    as_list.write_text(json.dumps([GOOD, row]), encoding="utf-8")
    assert f"{as_list}: row 2: " in error_of(as_list)


def test_all_problems_of_a_file_at_once(tmp_path: Path) -> None:
    text = error_of(write(tmp_path / "a.jsonl", {"x": 1}, GOOD, "{oops", {**GOOD, "output": ""}))
    assert "3 rows cannot be used" in text
    for place in ("line 1: has no form", "line 3: not JSON", "line 4: has no answer"):
        assert place in text
    assert "line 2" not in text


def test_problems_end_at_the_limit(tmp_path: Path) -> None:
    text = error_of(write(tmp_path / "a.jsonl", *[{"x": 1}] * (MAX_PROBLEMS + 30)))
    assert f"at least {MAX_PROBLEMS} rows cannot be used" in text
    assert f"line {MAX_PROBLEMS}:" in text
    assert f"line {MAX_PROBLEMS + 1}:" not in text


def test_no_text_of_a_row_floods_the_message(tmp_path: Path) -> None:
    secret = "S" * 5000
    for row in ({secret: 1}, {"messages": [{"role": secret, "content": "a"}]}):
        text = error_of(write(tmp_path / "a.jsonl", row))
        assert 0 < text.count("S") <= 80


def test_excerpt_escapes_what_cannot_be_seen() -> None:
    assert excerpt("a\u200b\x1b[31m") == r"'a\u200b\x1b[31m'"
    assert excerpt("x" * 60) == "'" + "x" * 60 + "'"
    assert excerpt("x" * 61) == "'" + "x" * 60 + "'..."
    assert len(excerpt("\x1b" * 500)) <= 70


def test_broken_json_lines(tmp_path: Path) -> None:
    text = error_of(write(tmp_path / "a.jsonl", GOOD, '{"instruction": "a", "output": }'))
    assert "a.jsonl:2: not JSON: Expecting value at column 32" in text
    assert "name the file .json" in error_of(write(tmp_path / "b.jsonl", "[", "{}", "]"))
    deep = "[" * 100_000
    assert "nested too deeply" in error_of(write(tmp_path / "c.jsonl", '{"a": ' + deep))


def test_broken_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"instruction": "a",\n "output": "b" "c"}]', encoding="utf-8")
    assert f"{path}:2: not JSON: Expecting ',' delimiter at column 16" in error_of(path)
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD), encoding="utf-8")
    assert "name the file .jsonl" in error_of(path)
    path.write_text(json.dumps(GOOD), encoding="utf-8")
    assert "holds an object, not a list of rows" in error_of(path)
    path.write_text("[]", encoding="utf-8")
    assert "has no rows" in error_of(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text(" \n\n")
    assert "is empty" in error_of(empty)
    assert "does not exist" in error_of(tmp_path / "none.jsonl")
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    assert "is a folder" in error_of(folder)
    assert "not a kind of file that is read" in error_of(write(tmp_path / "a.csv", GOOD))
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(json.dumps(GOOD).encode() + b'\n{"instruction": "\xe9"}')
    assert f"{latin}:2: is not UTF-8: byte 0xe9" in error_of(latin)
    packed = gzip.compress(json.dumps(GOOD).encode())
    for name, data in (("cut", packed[:-9]), ("plain", json.dumps(GOOD).encode())):
        path = tmp_path / f"{name}.jsonl.gz"
        path.write_bytes(data)
        assert "is damaged or not gzip" in error_of(path)


def test_a_message_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Message(role="user", content="a").role = "system"  # type: ignore[misc]
