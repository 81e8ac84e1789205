"""Arms of a user's own optimizer: one thing differs, at every step, or they are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from pilot.engines.arm import RunningArm
from pilot.engines.base import Program, StepRequest
from pilot.engines.recorder import Recorder
from pilot.engines.settle import base_table, settle_rates
from pilot.errors import ConfigError, UsageError
from pilot.folder import ArmFolder, Job, PilotFolder
from pilot.jsonl import read_jsonl, write_json
from pilot.own_rates import SURVEYED, write_own_rates
from pilot.plan import baseline_job, make_plan
from pilot.records import Evidence, Outcome, StepRecord
from pilot.schedule import full_schedule
from pilot.survey import require_planned
from tests.engines.test_hf_rates import OBJECTS, adam
from tests.engines.trainers import attach, config_for, make_model, make_trainer

STEPS = 12
Build = Callable[[float], Any]


def given(folder: Path, name: str | None, *, takes: bool = False) -> Build:
    """A Trainer with an optimizer object of two groups, and a scheduler object."""

    def build(rate: float, **more: Any) -> Any:
        model = make_model(dropout=0.1)
        own = rate if takes else 1e-2
        optimizer = adam(model, own, 10 * own)
        scheduler = OBJECTS[name](optimizer) if name else None
        return make_trainer(
            folder, model=model, optimizers=(optimizer, scheduler), learning_rate=rate,
            max_steps=24, **more,
        )  # fmt: skip

    return build


class Campaign:
    """A surveyed baseline in a folder, and arms on it."""

    def __init__(self, root: Path, build: Build, **sections: Any) -> None:
        self.root, self.build = root, build
        self.folder = PilotFolder(root)
        root.mkdir(parents=True, exist_ok=True)
        self.sections = {
            "full_run": {"schedule_steps": 24, "schedule": "trainer"},
            "pilot": {"min_peak_steps": 4, "validation_rows": 8, "seed": 7},
            "engine": {"name": "transformers"},
            "recipe": {"name": "t", "trainer": "x.py"},
            **sections,
        }
        engine = attach(build(1e-2), self.config(build(1e-2)))
        own: list[Any] = []

        def survey() -> Program:
            own.append(engine.own_rates())
            yield StepRequest(learning_rate=0.0, forced=True)
            return Outcome(status=Outcome.COMPLETED, last_step=1)

        engine.run(survey())
        self.own = own[0]
        write_own_rates(self.folder.own_rates, self.own)
        facts = {
            "num_train_rows": 32, "validation_rows": {"v": 12}, SURVEYED: self.own.facts(),
        }  # fmt: skip
        write_json(self.folder.survey, facts)
        tree = engine.config.model_dump(mode="json", by_alias=True)
        self.folder.config.write_text(yaml.safe_dump(tree))
        self.plan = make_plan(engine.config, facts, own_rates=base_table(self.folder))

    def config(self, trainer: Any, **optim: Any) -> Any:
        config = config_for(trainer, **self.sections)
        return config.model_copy(update={"optim": config.optim.model_copy(update=optim)})

    def run(
        self, name: str = "baseline", rate: float = 1e-2, variable: str = "", **optim: Any
    ) -> tuple[list[StepRecord], RunningArm | Outcome, Any]:
        """Train an arm for some steps; its records, the settled arm, the engine."""
        trainer = self.build(rate)
        engine = attach(trainer, self.config(trainer, **optim))
        folder: ArmFolder = self.folder.arm(name)
        folder.root.mkdir(parents=True, exist_ok=True)
        job: Job = baseline_job(self.plan, module_path="")
        job = Job(**{**vars(job), "arm": name, "variable": variable, "value": "v", "title": name})
        recorder = Recorder(folder, 1, pins_first_clip=False)
        schedule = full_schedule(engine.config, 32, base_table(self.folder))
        arm = RunningArm(
            folder=folder, job=job, config=engine.config, schedule=schedule, plan=self.plan,
            engine=engine, recorder=recorder, start_weights={},
        )  # fmt: skip
        settled: list[Any] = []

        def program() -> Program:
            settled.append(settle_rates(arm, goes_on=False))
            if isinstance(settled[0], Outcome):
                return settled[0]
            while engine.step < STEPS:
                step = engine.step + 1
                yield StepRequest(learning_rate=settled[0].schedule.learning_rate_at(step))
            engine.flush()
            return Outcome(status=Outcome.COMPLETED, last_step=engine.step)

        engine.run(program())
        recorder.close()
        return engine.observer.steps, settled[0], engine


def weights_differ(one: Any, other: Any) -> bool:
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return any(not torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "name", ["one_cycle", "annealing", "steps", "lambda", "cyclic", "counting"]
)
@pytest.mark.parametrize("takes", [False, True])
def test_a_rate_arm_scales_every_group_at_every_step(
    tmp_path: Path, name: str, takes: bool
) -> None:
    """Whether or not the user's code passes the argument on; one-cycle has rates of its own."""
    campaign = Campaign(tmp_path / "out", given(tmp_path, name, takes=takes))
    base, _, plain = campaign.run()
    lower, arm, engine = campaign.run("low", 2.5e-3, "optim.learning_rate")
    assert isinstance(arm, RunningArm)
    if not takes or name in ("steps", "lambda", "counting"):
        assert [r.learning_rate for r in lower] == pytest.approx(
            [r.learning_rate / 4 for r in base], rel=1e-12
        )
        assert [r.row_ids for r in lower] == [r.row_ids for r in base]
    assert lower[0].loss == base[0].loss and lower[0].grad_norm == base[0].grad_norm
    assert weights_differ(plain, engine)
    schedule = arm.schedule
    assert [r.learning_rate for r in lower] == [schedule.learning_rate_at(r.step) for r in lower]
    evidence = [e for e in read_jsonl(arm.folder.evidence, Evidence)][0]
    if not takes:
        assert evidence.values["scales"] == [0.25, 0.25]
    groups = engine.tap.rates._used
    if name != "annealing" or not takes:  # its lowest rate is absolute
        assert groups[1] / groups[0] == pytest.approx(
            plain.tap.rates._used[1] / plain.tap.rates._used[0]
        )


def test_one_group_takes_the_argument_and_one_does_not(tmp_path: Path) -> None:
    from transformers import Trainer

    class Head(Trainer):
        def create_optimizer(self, *rest: Any) -> Any:
            if self.optimizer is None:
                parameters = list(self.model.parameters())
                self.optimizer = torch.optim.SGD(
                    [
                        {"params": parameters[:4], "lr": self.args.learning_rate},
                        {"params": parameters[4:], "lr": 0.1},
                    ]
                )
            return self.optimizer

    build = lambda rate: make_trainer(tmp_path, kind=Head, learning_rate=rate, max_steps=24)  # noqa: E731
    campaign = Campaign(tmp_path / "out", build)
    _, _, plain = campaign.run()
    _, arm, engine = campaign.run("low", 2.5e-3, "optim.learning_rate")
    assert engine.tap.rates.scales == (1.0, 0.25)
    ratios = [a / b for a, b in zip(engine.tap.rates._used, plain.tap.rates._used, strict=True)]
    assert ratios == pytest.approx([0.25, 0.25])


def test_a_trainer_that_takes_it_is_left_alone(tmp_path: Path) -> None:
    build = lambda rate: make_trainer(tmp_path, learning_rate=rate, max_steps=24)  # noqa: E731
    campaign = Campaign(tmp_path / "out", build)
    base, _, _ = campaign.run()
    lower, _, engine = campaign.run("low", 2.5e-3, "optim.learning_rate")
    assert engine.tap.rates.scales == ()
    assert [r.learning_rate for r in lower] == [r.learning_rate / 4 for r in base]


def test_a_schedule_that_is_not_taken_is_the_baseline_again(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "out", given(tmp_path, "steps"))
    _, outcome, _ = campaign.run("warm", 1e-2, "full_run.warmup_steps")
    assert isinstance(outcome, Outcome) and outcome.status == Outcome.IDENTICAL
    assert "does not take full_run.warmup_steps" in outcome.message


def test_a_weight_decay_that_is_not_taken(tmp_path: Path) -> None:
    """AdamW's own 0.01 is the baseline's argument: it is replaced; else the arm is refused."""
    build = given(tmp_path, None)
    same = Campaign(tmp_path / "a", lambda rate: build(rate, weight_decay=0.01),
                    optim={"_target_": "torch.optim.AdamW", "learning_rate": 1e-2,
                           "weight_decay": 0.01})  # fmt: skip
    _, _, engine = same.run("decay", 1e-2, "optim.weight_decay", weight_decay=0.5)
    assert [g["weight_decay"] for g in engine.optimizer.param_groups] == [0.5, 0.5]
    other = Campaign(tmp_path / "b", build)
    with pytest.raises(UsageError, match="does not take it .its groups have"):
        other.run("decay", 1e-2, "optim.weight_decay", weight_decay=0.5)


def test_another_option_that_is_not_taken_is_refused(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "out", given(tmp_path, None))
    with pytest.raises(UsageError, match="nothing would differ"):
        campaign.run("beta", 1e-2, "optim.beta2")


def test_an_optimizer_that_finds_its_own_step(tmp_path: Path) -> None:
    """Adafactor with relative steps: no rate is planned, recorded or scaled, and nothing breaks."""
    from transformers.optimization import Adafactor, AdafactorSchedule

    model = make_model()
    optimizer = Adafactor(model.parameters(), relative_step=True, lr=None)
    trainer = make_trainer(
        tmp_path, model=model, optimizers=(optimizer, AdafactorSchedule(optimizer)), max_steps=24
    )
    engine = attach(trainer)
    found: list[Any] = []

    def program() -> Program:
        found.append(engine.own_rates())
        yield StepRequest(learning_rate=0.0)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=1)

    engine.run(program())
    assert found[0].unknown and len(engine.observer.steps) == 1


def test_a_cool_down_keeps_the_ratio_of_the_groups(tmp_path: Path) -> None:
    """From the real rate at the branch; the scheduler goes on as without a branch."""
    campaign = Campaign(tmp_path / "out", given(tmp_path, "one_cycle"))
    trainer = campaign.build(1e-2)
    engine = attach(trainer, campaign.config(trainer))
    used: list[list[float]] = []

    def program() -> Program:
        while engine.step < 8:
            yield StepRequest(learning_rate=0.0)
        for rate in (3e-3, 2e-3, 0.0):
            yield StepRequest(learning_rate=rate, forced=True)
            used.append(list(engine.tap.rates._used))
        while engine.step < 13:
            yield StepRequest(learning_rate=0.0)
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=engine.step)

    engine.run(program())
    assert [rates[0] for rates in used] == [3e-3, 2e-3, 0.0]
    # one-cycle: both groups rise from a 25th of their own highest rate
    assert [rates[1] / rates[0] for rates in used[:2]] == pytest.approx([10.0, 10.0])
    rates = [r.learning_rate for r in engine.observer.steps]
    assert rates[11:13] == list(campaign.own.first_group[11:13])


def test_a_resumed_arm_keeps_what_it_began_with(tmp_path: Path) -> None:
    """Its groups cannot tell any more: the scheduler is in the middle of its run."""
    campaign = Campaign(tmp_path / "out", given(tmp_path, "steps"))
    _, first, _ = campaign.run("low", 2.5e-3, "optim.learning_rate")
    assert isinstance(first, RunningArm)

    class Later:
        step = 9
        scales: list[Any] = []

        def own_rates(self) -> Any:
            own = campaign.own
            return dataclasses.replace(own, first_step=10, rates=own.rates[:, 9:] * 1.5)

        def change_groups(self, scales: Any, decays: Any) -> None:
            self.scales.append((scales, decays))

    later: Any = Later()
    resumed = settle_rates(dataclasses.replace(first, engine=later), goes_on=True)
    assert isinstance(resumed, RunningArm) and resumed.schedule == first.schedule
    assert later.scales == [([0.25, 0.25], None)]


@pytest.mark.parametrize(
    ("kind", "words"), [("cosine", ""), ("linear", "rate of step 2 is"), ("trainer", "")]
)
def test_a_survey_compares_formula_and_scheduler(tmp_path: Path, kind: str, words: str) -> None:
    trainer = make_trainer(tmp_path, max_steps=24, warmup_steps=0)
    engine = attach(trainer)
    own: list[Any] = []

    def program() -> Program:
        own.append(engine.own_rates())
        yield StepRequest(learning_rate=0.0, forced=True)
        return Outcome(status=Outcome.COMPLETED, last_step=1)

    engine.run(program())
    full_run = {"schedule_steps": 24, "warmup_steps": 0, "schedule": kind}
    config = config_for(trainer, full_run=full_run)
    if not words:
        require_planned(own[0], config, 32)
        return
    with pytest.raises(ConfigError) as caught:
        require_planned(own[0], config, 32)
    assert words in str(caught.value) and "full_run.schedule=trainer takes" in str(caught.value)
    unknown = dataclasses.replace(own[0], unknown="it reacts to metrics")
    with pytest.raises(ConfigError, match="it reacts to metrics"):
        require_planned(unknown, config, 32)
