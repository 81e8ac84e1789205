"""Lengths, sources and label audits of a Trainer's rows: what collator and data set say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

from pilot.data.audit import audit_rows
from pilot.engines.hf import facts as module
from pilot.engines.hf.audit import audit_set
from pilot.engines.hf.facts import UNMEASURED, row_facts
from pilot.engines.hf.rows import count_tokens
from pilot.engines.hf.sources import MAX_SOURCES, UNREAD
from pilot.engines.hf.workload import TrainerWorkload
from pilot.errors import UsageError
from pilot.folder import PilotFolder
from pilot.jsonl import write_json
from pilot.survey import write_rows
from tests import tiny_llama
from tests.engines.collect import Collect
from tests.engines.trainers import collate, config_for, make_rows, make_trainer, run_steps

ROWS = [{**row, "source": "abc"[i % 3]} for i, row in enumerate(make_rows(60))]
TEXTS = [
    {"prompt": f"What is {i}? " * (1 + i % 4), "completion": f"It is {i}." * (1 + i % 3)}
    for i in range(40)
]


def collated(trainer: Any) -> list[tuple[int, int]]:
    """Tokens and supervised tokens of every row, one by one."""
    loader = trainer.get_train_dataloader()
    counts = [
        count_tokens(trainer, [loader.collate_fn([loader.dataset[row]])]).tolist()
        for row in range(len(loader.dataset))
    ]
    return [(int(tokens), int(supervised)) for supervised, tokens, _ in counts]


def found(trainer: Any, **more: Any) -> list[Any]:
    return row_facts(trainer, trainer.get_train_dataloader(), **more)


def lengths(facts: Any) -> list[tuple[int, int]]:
    return [(fact.num_tokens, fact.num_supervised_tokens) for fact in facts]


def sft(tmp_path: Path, rows: Any, **arguments: Any) -> Any:
    """An ``SFTTrainer`` over texts, as a user builds it."""
    from trl import SFTConfig, SFTTrainer

    values = {
        "output_dir": str(tmp_path),
        "max_steps": 20,
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "report_to": "none",
        "bf16": False,
        "gradient_checkpointing": False,
        "max_length": 64,
        "disable_tqdm": True,
        **arguments,
    }
    return SFTTrainer(
        model=tiny_llama.model(),
        args=SFTConfig(**values),
        train_dataset=datasets.Dataset.from_list(list(rows)),
        processing_class=tiny_llama.tokenizer(),
    )


# ---- lengths


@pytest.mark.parametrize("kind", ["list", "datasets", "selected", "torch columns", "rows"])
def test_lengths_are_those_of_the_collator(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = datasets.Dataset.from_list(ROWS)
    sets = {
        "list": ROWS,
        "datasets": whole,
        "selected": whole.shuffle(seed=3).select(range(50)),
        "torch columns": whole.with_format("numpy"),
        "rows": torch.utils.data.Subset(ROWS, list(range(40))),  # type: ignore[arg-type]
    }
    loose = lambda rows: collate([{k: [int(x) for x in r[k]] for k in KEYS} for r in rows])  # noqa: E731
    trainer = make_trainer(tmp_path, train=sets[kind], collator=loose)
    expected = collated(trainer)
    most = count_calls(monkeypatch)
    assert lengths(found(trainer)) == expected
    assert most() < len(expected)


KEYS = ("input_ids", "labels")


def count_calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    """How many rows are collated from now on."""
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return count_tokens(*arguments)

    monkeypatch.setattr(module, "count_tokens", counted)
    return lambda: len(calls)


def test_a_collator_of_its_own_kind_is_asked_for_every_row(tmp_path: Path) -> None:
    def every_other(rows: Any) -> Any:
        batch = collate(rows)
        masked = batch["labels"].clone()
        masked[:, ::2] = -100
        return {**batch, "labels": masked}

    trainer = make_trainer(tmp_path, train=ROWS, collator=every_other)
    assert lengths(found(trainer)) == collated(trainer)


def test_a_collator_that_cuts_long_rows_is_noticed(tmp_path: Path) -> None:
    """One row of 400 is long, and none of the probed ones is."""
    long = {"input_ids": list(range(6, 66)), "labels": list(range(6, 66))}
    rows = [*make_rows(150), long, *make_rows(249, seed=2)]
    cut = lambda some: collate([{k: v[:30] for k, v in row.items()} for row in some])  # noqa: E731
    trainer = make_trainer(tmp_path, train=datasets.Dataset.from_list(rows), collator=cut)
    facts = lengths(found(trainer))
    assert facts == collated(trainer) and max(facts)[0] == 30


@pytest.mark.parametrize("by_rule", [True, False])
def test_slow_rows_are_measured_on_an_even_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_rule: bool
) -> None:
    monkeypatch.setattr(module, "SAMPLE_ROWS", 20)
    flat = lambda rows: {**collate(rows), "labels": torch.full((len(rows), 3), 7)}  # noqa: E731
    trainer = make_trainer(tmp_path, train=ROWS, collator=collate if by_rule else flat)
    facts, expected = found(trainer, most_secs=0.0), collated(trainer)
    measured = [row for row, fact in enumerate(facts) if fact.num_tokens != UNMEASURED]
    assert len(measured) == 20 and measured[0] == 0 and measured[-1] == 59
    assert [lengths(facts)[row] for row in measured] == [expected[row] for row in measured]
    assert {facts[1].source, facts[0].source} == {UNREAD, "a"}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"completion_only_loss": False},
        {"packing": True},
        {"padding_free": True, "max_length": None},
        {"max_length": 24},
    ],
    ids=["completion", "all tokens", "packed", "padding free", "cut"],
)
def test_lengths_of_an_sft_trainer(tmp_path: Path, arguments: dict[str, Any]) -> None:
    trainer = sft(tmp_path, TEXTS, **arguments)
    assert lengths(found(trainer)) == collated(trainer)


def test_lengths_of_a_dpo_trainer(tmp_path: Path) -> None:
    from trl import DPOConfig, DPOTrainer

    rows = [{"prompt": r["prompt"], "chosen": r["completion"], "rejected": "No."} for r in TEXTS]
    trainer = DPOTrainer(
        model=tiny_llama.model(),
        ref_model=tiny_llama.model(),
        args=DPOConfig(
            output_dir=str(tmp_path), max_steps=4, use_cpu=True, report_to="none", bf16=False
        ),
        train_dataset=datasets.Dataset.from_list([{**r, "source": "p"} for r in rows]),
        processing_class=tiny_llama.tokenizer(),
    )
    facts = found(trainer)
    assert lengths(facts) == collated(trainer) and {f.source for f in facts} == {"p"}


# ---- sources


def workload(trainer: Any, folder: PilotFolder | None = None) -> TrainerWorkload:
    config = config_for(trainer)
    config.recipe["trainer"] = "train.py"
    return TrainerWorkload(trainer, config, {}, folder=folder)


def steps_of(work: TrainerWorkload, steps: int = 4) -> Any:
    order = work.own_order(steps * 4)
    assert order is not None
    return run_steps(work.make_engine(order=order, first_step=1, observer=Collect()), steps)


@pytest.mark.parametrize("kind", ["list", "datasets", "shuffled"])
def test_a_source_column_reaches_the_records(tmp_path: Path, kind: str) -> None:
    """A ``datasets`` column that the model does not take is dropped before the collator."""
    whole = datasets.Dataset.from_list(ROWS)
    rows: Any = {"list": ROWS, "datasets": whole, "shuffled": whole.shuffle(seed=5)}[kind]
    work = workload(make_trainer(tmp_path, train=rows))
    expected = [row["source"] for row in rows]
    assert [fact.source for fact in work.facts()] == expected
    for record in steps_of(workload(make_trainer(tmp_path, train=rows))):
        named = [expected[row] for row in record.row_ids]
        assert record.source_counts == {name: named.count(name) for name in sorted(set(named))}


def test_an_arm_takes_the_sources_from_the_survey(tmp_path: Path) -> None:
    folder = PilotFolder(tmp_path)
    facts = workload(make_trainer(tmp_path, train=ROWS)).facts()
    names = sorted({fact.source for fact in facts})
    write_rows(folder.rows, facts, names)
    write_json(folder.survey, {"source_names": names})
    bare = [{k: row[k] for k in KEYS} for row in ROWS]
    records = steps_of(workload(make_trainer(tmp_path, train=bare), folder))
    assert set().union(*(r.source_counts for r in records)) == {"a", "b", "c"}


def test_a_source_survives_tokenising_and_packing_loses_it(tmp_path: Path) -> None:
    rows = [{**row, "source": "xy"[i % 2]} for i, row in enumerate(TEXTS)]
    assert [f.source for f in found(sft(tmp_path, rows))] == [row["source"] for row in rows]
    assert {f.source for f in found(sft(tmp_path, rows, packing=True))} == {"train"}


def test_rows_of_another_set_lend_no_source(tmp_path: Path) -> None:
    """A loader of the user's own over shuffled rows: row numbers mean other rows there."""
    from transformers import Trainer

    whole = datasets.Dataset.from_list(ROWS)

    class Own(Trainer):
        def get_train_dataloader(self) -> Any:
            rows = self.train_dataset.shuffle(seed=1).remove_columns("source")
            return torch.utils.data.DataLoader(rows, batch_size=4, collate_fn=collate)

    assert {f.source for f in found(make_trainer(tmp_path, kind=Own, train=whole))} == {"train"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 1], ["1", "2", "1"]),
        (["a", None, ""], ["a", "train", "train"]),
        ([["a"], ["b"], ["c"]], ["train"] * 3),
        (["x" * 500, "y", "z"], ["x" * 200, "y", "z"]),
    ],
    ids=["numbers", "absent", "lists", "long"],
)
def test_names_of_sources(tmp_path: Path, values: Any, expected: list[str]) -> None:
    rows = [{**row, "source": value} for row, value in zip(ROWS, values, strict=False)]
    for train in (rows, datasets.Dataset.from_list(rows)):
        assert [fact.source for fact in found(make_trainer(tmp_path, train=train))] == expected


def test_names_of_documents_are_no_sources(tmp_path: Path) -> None:
    rows = [{**row, "source": f"page {i}"} for i, row in enumerate(make_rows(MAX_SOURCES + 1))]
    assert {f.source for f in found(make_trainer(tmp_path, train=rows))} == {"train"}


# ---- the audit


def test_a_set_is_audited_chunk_by_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(60)
    rows[7] = {"input_ids": [6, 400, 7], "labels": [6, 400, 7]}
    rows[41] = {"input_ids": [6, 7, 8], "labels": [-100, -100, -100]}
    rows[59] = {"input_ids": [6] * 30, "labels": [6] * 30}
    limits: dict[str, Any] = {"vocab_size": 320, "max_positions": 25}
    expected = audit_rows("train", rows, **limits)
    assert expected["no_labels"] == [41] and expected["too_long"] == [59]
    for path in ("pilot.engines.hf.columns.CHUNK_ROWS", "pilot.engines.hf.audit.CHUNK_ROWS"):
        monkeypatch.setattr(path, 16)
    assert audit_set("train", rows, **limits) == expected
    whole = datasets.Dataset.from_list(rows)
    assert audit_set("train", whole, **limits) == expected
    turned = whole.select(list(reversed(range(60))))
    assert audit_set("train", turned, **limits)["no_labels"] == [18]


def test_a_slow_set_is_audited_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.engines.hf.audit.SAMPLE_ROWS", 10)
    rows = make_rows(60)
    rows[59] = {"input_ids": [6, 7], "labels": [-100, -100]}
    limits: dict[str, Any] = {"vocab_size": 320, "max_positions": 25}
    result = audit_set("train", rows, **limits, most_secs=0.0)
    assert result["num_rows_checked"] == 10 and result["no_labels"] == [59]


def test_a_set_without_labels_is_not_read() -> None:
    texts = datasets.Dataset.from_list([{"text": "a"}] * 3)
    result = audit_set("train", texts, vocab_size=3, max_positions=None)
    assert result["num_rows"] == 3 and result["num_rows_checked"] == 0


class Rows(list[Any]):
    """Rows of which some cannot be read, always or at one of the reads."""

    bad: tuple[int, ...] = ()
    at_read = 0
    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        if index in self.bad or self.reads == self.at_read:
            raise OSError(f"row {index} is\n truncated")
        return super().__getitem__(index)


def test_a_row_that_cannot_be_read_is_named_and_not_fatal(tmp_path: Path) -> None:
    rows, failed = Rows(ROWS), dict[int, str]()
    rows.bad = (13, 41)
    facts = found(make_trainer(tmp_path, train=rows), failed=failed)
    assert failed == {row: f"OSError: row {row} is truncated" for row in (13, 41)}
    assert [row for row, fact in enumerate(facts) if fact.num_tokens == UNMEASURED] == [13, 41]
    good = found(make_trainer(tmp_path, train=ROWS))
    assert [f for row, f in enumerate(facts) if row not in (13, 41)] == [
        fact for row, fact in enumerate(good) if row not in (13, 41)
    ]
    limits: dict[str, Any] = {"vocab_size": 320, "max_positions": None}
    audit = audit_set("train", rows, **limits, known={7: "collated by itself: ValueError: x"})
    assert (audit["num_rows_checked"], audit["num_unreadable"]) == (58, 3)
    assert audit["unreadable"] == [7, 13, 41] and "ValueError" in audit["unreadable_why"]


def test_what_fails_once_is_met_by_the_run_itself(tmp_path: Path) -> None:
    rows, failed = Rows(ROWS), dict[int, str]()
    rows.at_read = 20
    facts = found(make_trainer(tmp_path, train=rows), failed=failed)
    assert failed == {} and facts == found(make_trainer(tmp_path, train=ROWS))


def test_a_collator_that_fails_on_some_rows_and_one_that_wants_several(tmp_path: Path) -> None:
    def picky(rows: Any) -> Any:
        if any(len(row["input_ids"]) == longest for row in rows):
            raise ValueError("too long")
        return collate(rows)

    def pairs(rows: Any) -> Any:
        if len(rows) < 2:
            raise ValueError("pairs only")
        return collate(rows)

    longest = max(len(row["input_ids"]) for row in ROWS)
    failed: dict[int, str] = {}
    facts = found(make_trainer(tmp_path, train=ROWS, collator=picky), failed=failed)
    assert failed and set(failed.values()) == {"collated by itself: ValueError: too long"}
    unmeasured = [row for row, fact in enumerate(facts) if fact.num_tokens == UNMEASURED]
    assert unmeasured == sorted(failed)
    failed.clear()
    trainer = make_trainer(tmp_path, train=ROWS, collator=pairs)
    facts = found(trainer, failed=failed)
    assert failed == {} and {fact.num_tokens for fact in facts} == {UNMEASURED}
    with pytest.raises(UsageError, match="takes no row by itself"):
        workload(trainer).facts()


def test_a_collator_that_drops_rows_is_not_at_fault(tmp_path: Path) -> None:
    def dropping(rows: Any) -> Any:
        return collate([row for row in rows if len(row["input_ids"]) < longest])  # [] alone: raises

    longest = max(len(row["input_ids"]) for row in ROWS)
    failed: dict[int, str] = {}
    facts = found(make_trainer(tmp_path, train=ROWS, collator=dropping), failed=failed)
    dropped = [row for row, given in enumerate(ROWS) if len(given["input_ids"]) == longest]
    assert failed == {} and dropped
    assert [row for row, fact in enumerate(facts) if fact.num_tokens == UNMEASURED] == dropped


def test_a_collator_that_breaks_for_good_is_at_fault(tmp_path: Path) -> None:
    calls = [0]

    def broken(rows: Any) -> Any:
        calls[0] += 1
        if calls[0] > 19:
            raise KeyError("gone")
        return collate(rows)

    failed: dict[int, str] = {}
    found(make_trainer(tmp_path, train=ROWS, collator=broken), failed=failed)
    assert len(failed) == len(ROWS) and "KeyError" in failed[0]
