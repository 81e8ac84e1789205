"""Plants one fault at a time in a copy of pilot and counts how many the tests notice.

    make mutants            # all of them
    python tests/mutants.py clip_before_unscale drop_token_weight

Each mutation is one line. It is caught when the named tests fail. Exit code 1 when one survives or
no longer fits the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("pilot", "conf", "recipes", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Mutation:
    """Replace ``old`` by ``new`` (once) in ``file``; ``tests`` have to notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str


MUTATIONS = (
    Mutation(
        "clip_before_unscale",
        "pilot/engines/native.py",
        "            self.scaler.unscale_(self.optimizer)\n",
        "",
        "tests/engines/test_native.py",
    ),
    Mutation(
        "drop_token_weight",
        "pilot/engines/losses.py",
        "scaled = sums.sum() / self._total if",
        "scaled = sums.mean() if",
        "tests/engines/test_native.py",
    ),
    Mutation(
        "mean_of_means",
        "pilot/engines/losses.py",
        "recipe, weights, sum(weights)",
        "recipe, weights, weights[0] * len(weights)",
        "tests/engines/test_native.py",
    ),
    Mutation(
        "validation_moves_the_random_state",
        "pilot/engines/validation.py",
        "    seeds.set_random_state(state)\n    return records",
        "    torch.rand(1)\n    return records",
        "tests/engines/test_native.py",
    ),
    Mutation(
        "dropout_in_validation",
        "pilot/engines/validation.py",
        "engine.model.eval()",
        "engine.model.train()",
        "tests/engines/test_native.py",
    ),
    Mutation(
        "snapshot_without_moments",
        "pilot/engines/native_state.py",
        'engine.optimizer.load_state_dict(copy_state(state["optimizer"]))',
        "pass",
        "tests/engines/test_native.py",
    ),
    Mutation(
        "out_of_memory_not_recognised",
        "pilot/engines/guard.py",
        "if isinstance(error, (MemoryError, torch.OutOfMemoryError)):",
        "if isinstance(error, torch.OutOfMemoryError):",
        "tests/engines/test_native.py",
    ),
    Mutation(
        "norm_after_clipping",
        "pilot/probe.py",
        "self._grad_norm, self._clip_coef = total, torch.ones_like(total)",
        "self._grad_norm, self._clip_coef = total.clamp(max=0.2), torch.ones_like(total)",
        "tests/engines/test_native.py",
    ),
    Mutation(
        "update_of_the_whole_embedding",
        "pilot/probe.py",
        "self._touched[index] = (",
        "self._ignored = (",
        "tests/test_probe.py",
    ),
    Mutation(
        "swap_two_schedules",
        "pilot/schedule.py",
        'if self.kind == "linear":',
        'if self.kind == "cosine":',
        "tests/test_schedule.py",
    ),
    Mutation(
        "rates_of_another_step",
        "pilot/checks/schedule.py",
        "lag: plan.learning_rate_at(record.step - lag)",
        "lag: plan.learning_rate_at(record.step - lag - 1)",
        "tests/checks/test_schedule.py",
    ),
    Mutation(
        "any_lag_after_a_skip",
        "pilot/checks/schedule.py",
        "lags = {*lags, *(lag + 1 for lag in lags)}",
        "lags = {*lags, *range(9)}",
        "tests/checks/test_schedule.py",
    ),
    Mutation(
        "rates_left_scaled",
        "pilot/engines/hf/used_rates.py",
        'group["lr"] = own\n',
        'group["lr"] = group["lr"]\n',
        "tests/engines/test_settle.py",
    ),
    Mutation(
        "one_group_scaled",
        "pilot/engines/settle.py",
        "return tuple(factor if is_same else 1.0 for is_same in same) if any(same) else ()",
        "return (factor, *([1.0] * (len(same) - 1))) if any(same) else ()",
        "tests/engines/test_settle.py",
    ),
    Mutation(
        "schedule_off_by_one",
        "pilot/schedule.py",
        "done, warmup, floor = step - 1,",
        "done, warmup, floor = step,",
        "tests/test_schedule.py",
    ),
    Mutation(
        "warm_up_cut_by_the_budget",
        "pilot/refusals.py",
        "if budget is not None and needed > budget:",
        "if budget is not None and needed > 2 * budget:",
        "tests/test_plan.py",
    ),
    Mutation(
        "cool_down_that_stays_hot",
        "pilot/segments.py",
        "* (cooldown - index + 1) / (cooldown + 1)",
        "* (cooldown + 1) / (cooldown + 1)",
        "tests/test_plan.py",
    ),
    Mutation(
        "no_checksum",
        "pilot/checkpoint.py",
        "if _sha256(path) != checkpoint.sha256:",
        "if False:",
        "tests/test_checkpoint.py",
    ),
    Mutation(
        "checkpoints_may_execute_code",
        "pilot/checkpoint.py",
        "weights_only=True)",
        "weights_only=False)",
        "tests/test_checkpoint.py",
    ),
    Mutation(
        "attempts_joined_wrongly",
        "pilot/records.py",
        "if record.step < records[0].step]",
        "if record.step <= records[0].step]",
        "tests/test_records.py",
    ),
    Mutation(
        "skip_a_gate",
        "pilot/verdict.py",
        "    if FAIL in status.values():\n",
        "    if FAIL in list(status.values())[1:]:\n",
        "tests/test_verdict.py",
    ),
    Mutation(
        "not_measured_is_fine",
        "pilot/verdict.py",
        "    if silent or missing or UNDETERMINED",
        "    if silent or UNDETERMINED",
        "tests/test_verdict.py",
    ),
    Mutation(
        "token_weight_dropped_in_comparison",
        "pilot/compare/paired.py",
        "residual = change - value * counts",
        "residual = change - value * counts.mean()",
        "tests/compare/test_paired.py",
    ),
    Mutation(
        "progress_never_fails",
        "pilot/checks/progress.py",
        "low = m.progress < gate.min_progress",
        "low = m.progress < -gate.min_progress",
        "tests/checks/test_progress.py",
    ),
    Mutation(
        "nan_is_a_number",
        "pilot/checks/finite.py",
        "if not (record.finite_loss and math.isfinite(record.loss)):",
        "if record.loss > 1e300:",
        "tests/checks/test_finite.py",
    ),
    Mutation(
        "extremes_left_out",
        "pilot/data/representative.py",
        "chosen = _with_extremes(chosen, extremes, num_tokens, source)",
        "pass",
        "tests/data/test_representative.py",
    ),
    Mutation(
        "prompt_is_trained_on",
        "pilot/data/chat.py",
        "labels[inside] = ids[inside]",
        "labels[:] = ids",
        "tests/data/test_chat.py",
    ),
    Mutation(
        "labels_not_shifted",
        "recipes/llama_ft.py",
        'targets = pad(batch["labels"][:, 1:], (0, 1), value=IGNORED)',
        'targets = batch["labels"]',
        "tests/recipes/test_llama_ft.py",
    ),
    Mutation(
        "identical_arms_are_guessed",
        "pilot/arms/forks.py",
        "if not math.isfinite(norm) or near or _factor",
        "if near or _factor",
        "tests/arms/test_forks.py",
    ),
    Mutation(
        "a_fork_forgets_what_follows",
        "pilot/arms/forks.py",
        "    if job.follows or _is_restored(job, baseline):",
        "    if _is_restored(job, baseline):",
        "tests/arms/test_forks.py",
    ),
    Mutation(
        "other_rates_end_early_without_a_difference",
        "pilot/compare/sequential.py",
        "found.same_rate and within",
        "within",
        "tests/compare/test_sequential.py",
    ),
    Mutation(
        "noise_counted_once",
        "pilot/compare/paired.py",
        "noise = math.sqrt(2.0) * noise_sd",
        "noise = noise_sd",
        "tests/compare/test_paired.py tests/compare/test_effects.py",
    ),
    Mutation(
        "a_replica_is_identical_by_its_losses",
        "pilot/engines/early_end.py",
        "    if _start_weights(baseline) != _start_weights(arm) or not arm.steps:\n",
        "    if not arm.steps:\n",
        "tests/engines/test_early_end.py",
    ),
    Mutation(
        "an_exception_is_tried_again",
        "pilot/launchers/local.py",
        "    if code >= 0:\n",
        "    if code > 1:\n",
        "tests/launchers/test_local.py",
    ),
    Mutation(
        "memory_beside_others_is_an_outcome",
        "pilot/launchers/local.py",
        "if run.had_company and not run.alone:",
        "if False:",
        "tests/launchers/test_local.py",
    ),
    Mutation(
        "what_follows_is_not_listed",
        "pilot/arms/one_variable.py",
        "follows = [name for name in differing if name != key]",
        "follows: list[str] = []",
        "tests/arms/test_one_variable.py",
    ),
    Mutation(
        "the_remedy_is_the_first_arm",
        "pilot/cause.py",
        "key=lambda r: (not r.proven, _final_loss(view, r.arm))",
        "key=lambda r: 0",
        "tests/test_cause.py",
    ),
    Mutation(
        "data_not_in_the_fingerprint",
        "pilot/fingerprint.py",
        '"sha256": digest.hexdigest(), "sampled"',
        '"sha256": str(size), "sampled"',
        "tests/test_fingerprint.py",
    ),
    Mutation(
        "extension_never_ends",
        "pilot/engines/extension.py",
        "while engine.step < last and monitor.has_open and not recorder.stop_reason:",
        "while engine.step < last and not recorder.stop_reason:",
        "tests/cli/test_extension.py",
    ),
    Mutation(
        "extension_moves_the_cooldown",
        "pilot/engines/extension.py",
        "    engine.restore(checkpoint.load(states[0]))\n",
        "",
        "tests/cli/test_extension.py",
    ),
    Mutation(
        "open_event_passes",
        "pilot/checks/events.py",
        "is_undecided = undecided and event.is_open and event.severity != FAIL",
        "is_undecided = False",
        "tests/checks/test_events.py",
    ),
    Mutation(
        "events_skip_the_extension",
        "pilot/checks/events.py",
        "    monitor = watch(steps, ",
        "    monitor = watch(arm.steps, ",
        "tests/checks/test_events.py",
    ),
    Mutation(
        "paired_loss_without_interval",
        "pilot/checks/paired_loss.py",
        "bad = found.value - found.half_width >",
        "bad = found.value + found.half_width >",
        "tests/checks/test_paired_loss.py",
    ),
    Mutation(
        "skips_forgotten_at_a_fork",
        "pilot/engines/recorder.py",
        "                self._skips = self._skips + 1 if record.step_skipped else 0\n",
        "",
        "tests/engines/test_recorder.py",
    ),
    Mutation(
        "oom_kills_of_the_root_group_only",
        "pilot/memory.py",
        'folders = [root / path.lstrip("/")]',
        "folders = [root]",
        "tests/test_memory.py",
    ),
    Mutation(
        "a_resume_is_a_new_run",
        "pilot/readers/runs.py",
        "    if not is_start:\n        return RESUME\n",
        "    if not is_start:\n        return RUN\n",
        "tests/readers/test_points.py",
    ),
    Mutation(
        "nan_losses_are_dropped",
        "pilot/series/monitor.py",
        "        self._nonfinite.update(point)\n",
        "",
        "tests/series",
    ),
    Mutation(
        "imported_modules_not_bound",
        "pilot/run_code.py",
        "paths = {name: folder / name for name in imported} | dict(found or {})",
        "paths = dict(found or {})",
        "tests/test_full_run.py tests/test_fingerprint.py",
    ),
    Mutation(
        "callback_is_a_difference",
        "pilot/script_source.py",
        "tree = _WithoutPilot(_names_of(tree)).visit(tree)",
        "pass",
        "tests/test_script_source.py",
    ),
    Mutation(
        "another_start_is_compared",
        "pilot/compare/start.py",
        "abs(own - before) <= limit",
        "True",
        "tests/compare/test_start.py",
    ),
    Mutation(
        "silent_gradients_pass",
        "pilot/checks/silent.py",
        "record.grad_norm == 0.0",
        "record.grad_norm < 0.0",
        "tests/checks/test_silent.py",
    ),
    Mutation(
        "weights_that_are_replaced_pass",
        "pilot/checks/jump.py",
        "if pair[1].relative_update > MAX_FRAC]",
        "if pair[1].relative_update > 100]",
        "tests/checks/test_jump.py",
    ),
    Mutation(
        "foreign_clipping_is_believed",
        "pilot/engines/hf/clipping.py",
        "if not (self._watcher.hides_tensors or _is_accelerates(original)):",
        "if False:",
        "tests/engines/test_trainer_faults.py",
    ),
)


def make_copy(place: Path) -> Path:
    """A copy of what the tests need."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, place / part, ignore=ignore)
        else:
            shutil.copy2(source, place / part)
    return place


def is_caught(mutation: Mutation, copy: Path) -> bool | None:
    """Whether the tests notice the mutation; nothing when it does not fit the code."""
    path = copy / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        return None
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutation.tests.split()]
    try:
        done = subprocess.run(
            [sys.executable, *words], cwd=copy, env=environment, capture_output=True, check=False
        )
    finally:
        path.write_text(text, encoding="utf-8")
    return done.returncode == 1  # 1: tests failed; others: they could not even run


def main(names: list[str]) -> int:
    """Try the named mutations, or all; two at a time."""
    chosen = [m for m in MUTATIONS if not names or m.name in names]
    copies: Queue[Path] = Queue()
    survived = []
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(2) as pool:
        for number in range(2):
            copies.put(make_copy(Path(place) / str(number)))

        def attempt(mutation: Mutation) -> tuple[Mutation, bool | None]:
            copy = copies.get()
            try:
                return mutation, is_caught(mutation, copy)
            finally:
                copies.put(copy)

        for mutation, caught in pool.map(attempt, chosen):
            word = {True: "caught", False: "SURVIVED", None: "DOES NOT FIT"}[caught]
            print(f"{word:<12} {mutation.name}  ({mutation.file})", flush=True)
            if not caught:
                survived.append(mutation.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutations caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
