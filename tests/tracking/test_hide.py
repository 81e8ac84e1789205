from __future__ import annotations

import pytest

from pilot.tracking.hide import hide_message, hide_text, is_secret_key


@pytest.mark.parametrize(
    "key",
    ["recipe.hub_token", "auth.token.value", "db.password", "apiKey", "wandb-api-key", "HF_TOKEN"],
)
def test_secret_keys(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    ["recipe.tokenizer", "batch.max_tokens", "recipe.pad_token", "eos_token_id", "num_tokens",
     "optim.learning_rate", "recipe.monkey", "keyboard", "tokens_per_sec"],
)  # fmt: skip
def test_ordinary_keys(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("http://bob:s3cr3t@host:5000/x", "http://<hidden>@host:5000/x"),
        ("https://onlytoken@host", "https://<hidden>@host"),
        ('["--api_key", "abc", "--lr", "3"]', '["--api_key", "<hidden>", "--lr", "3"]'),
        ("train.py --hub-token=abc --pad_token x", "train.py --hub-token=<hidden> --pad_token x"),
        ("--tokenizer gpt2 --token --lr 3", "--tokenizer gpt2 --token --lr 3"),
        ("use hf_abcdefghijklmnop now", "use <hidden> now"),
        ("sk-proj-abcdefghij1234", "<hidden>"),
        ("https://h/p?a=1&api_key=zzz&b=2", "https://h/p?a=1&api_key=<hidden>&b=2"),
        ("ghp_0123456789abcdef0123", "<hidden>"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("torch.optim.AdamW", "torch.optim.AdamW"),
        ("mail me@example.org", "mail me@example.org"),
        ("risk-averse-sampling-here", "risk-averse-sampling-here"),
    ],
)
def test_values(text: str, hidden: str) -> None:
    assert hide_text(text) == hidden


def test_a_message_also_hides_assignments_but_stays_readable_json() -> None:
    assert hide_message("bad password=hunter22, retry") == "bad password=<hidden>, retry"
    assert hide_message("num_tokens: 1234567") == "num_tokens: 1234567"
    assert hide_message(r'{"why": "token=abcdefgh\"x"}') == r'{"why": "token=<hidden>\"x"}'
