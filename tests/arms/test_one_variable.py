"""The one-variable rule: one leaf changes, what follows is listed, all else is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from pilot.arms.one_variable import Changed, change_leaf, change_tree
from pilot.errors import ConfigError, Mistake, UsageError
from pilot.mistakes import flat_keys

TEXT = """
recipe:
  name: tiny
  module: tiny
  width: 4
  lora: {rank: 8, alpha: 16.0}
  rates: {base: 0.5, twice: "${recipe.rates.base}"}
  note: null
  tags: [a, "${recipe.name}"]
full_run: {schedule_steps: 400, epochs: null, warmup_steps: 5}
optim:
  _target_: torch.optim.AdamW
  learning_rate: 1e-3
  beta1: 0.9
  beta2: 0.999
  betas: ["${..beta1}", "${..beta2}"]
  eps: [null, 1.0e-3]
  weight_decay: ${recipe.rates.base}
batch: {micro_batch_size: 8, sequence_length: "${recipe.width}"}
precision: fp32
engine: {name: native, device: auto}
pilot: {seed: 0, data_seed: 0, cooldown_steps: "${recipe.width}", min_peak_steps: 16}
arms: {max_grad_norm: "${optim.learning_rate}", add: [{optim.beta2: 0.95}]}
gates: {strict: false}
tracking: {uri: null, experiment: "${recipe.name}"}
launcher: {name: local}
out_dir: out
"""


def _plain(text: str = TEXT) -> dict[str, Any]:
    tree = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def _resolved(text: str = TEXT) -> dict[str, Any]:
    tree = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree[part]
    return tree


def _refused(key: str, value: Any, text: str = TEXT) -> Mistake:
    with pytest.raises(ConfigError) as caught:
        change_leaf(text, key, value)
    assert isinstance(caught.value, UsageError)
    (mistake,) = caught.value.mistakes
    assert mistake.key == key
    return mistake


def _differences(changed: Changed, before: dict[str, Any]) -> set[str]:
    keys = [*flat_keys(before), *flat_keys(changed.tree)]

    def value(tree: Any, key: str) -> Any:
        try:
            return _at(tree, key)
        except (KeyError, TypeError):
            return "no such key"

    return {key for key in keys if value(before, key) != value(changed.tree, key)}


def test_one_beta_changes_and_betas_follow() -> None:
    changed = change_leaf(TEXT, "optim.beta2", 0.95)
    assert changed.baseline_value == 0.999
    assert changed.follows == {"optim.betas": "[0.9, 0.95]"}
    assert changed.tree["optim"]["beta2"] == 0.95
    assert changed.tree["optim"]["betas"] == [0.9, 0.95]
    assert _differences(changed, _resolved()) == {"optim.beta2", "optim.betas"}


@pytest.mark.parametrize(
    ("key", "value", "follows"),
    [
        ("optim.learning_rate", 1, {"arms.max_grad_norm": "1"}),
        ("optim.eps", [1e-8, 1e-3], {}),
        ("full_run.warmup_steps", 0, {}),
        ("full_run.epochs", 2.5, {}),
        ("precision", "bf16", {}),
        ("pilot.seed", 7, {}),
        ("pilot.seed", 7, {}),
        ("recipe.lora", None, {}),
        ("recipe.lora.rank", 4, {}),
        ("recipe.note", {"a": 1, "b": [2]}, {}),
        (
            "recipe.rates.base",
            1e-5,
            {"recipe.rates.twice": "1.0e-05", "optim.weight_decay": "1.0e-05"},
        ),
        ("recipe.name", "other", {"recipe.tags": "[a, other]", "tracking.experiment": "other"}),
        ("tracking.uri", "x", {}),
        ("launcher.name", "y", {}),
        ("optim.amsgrad", True, {}),
        ("recipe.noise", 0.1, {}),
    ],
)
def test_exactly_the_leaf_and_what_follows_it_differ(
    key: str, value: Any, follows: dict[str, str]
) -> None:
    changed = change_leaf(TEXT, key, value)
    assert changed.follows == follows
    assert _at(changed.tree, key) == value
    inside = {k for k in _differences(changed, _resolved()) if k == key or k.startswith(f"{key}.")}
    assert _differences(changed, _resolved()) - inside == set(follows)
    assert inside


def test_the_value_of_the_baseline_is_told_and_the_inputs_are_left_alone() -> None:
    plain, resolved = _plain(), _resolved()
    value = {"rank": 4}
    changed = change_tree(plain, "recipe.note", value, resolved)
    assert changed.baseline_value is None
    assert change_leaf(TEXT, "recipe.lora", None).baseline_value == {"rank": 8, "alpha": 16.0}
    assert change_leaf(TEXT, "optim.amsgrad", True).baseline_value is None
    changed.tree["recipe"]["note"]["rank"] = 5
    changed.tree["optim"]["betas"].append(3)
    assert (plain, resolved, value) == (_plain(), _resolved(), {"rank": 4})


@pytest.mark.parametrize(
    ("key", "value", "rule", "remedy"),
    [
        (
            "optim.betas",
            [0.9, 0.95],
            "follows optim.beta1, optim.beta2 by interpolation: changing it would hide the link",
            "change optim.beta1, optim.beta2 (one of them) instead; optim.betas follows",
        ),
        (
            "optim.weight_decay",
            0.1,
            "follows recipe.rates.base by interpolation: changing it would hide the link",
            "change recipe.rates.base instead; optim.weight_decay follows",
        ),
        ("optim", {"beta1": 0.8, "beta2": 0.9}, "is a section of 7 keys", "name one: optim._targ"),
        ("recipe", 3, "is a section of 9 keys", "name one: recipe.name, recipe.width, recipe"),
        ("recipe.lora", {"rank": 1}, "is a section of 2 keys", "recipe.lora.rank, recipe.lora.al"),
        ("optim.eps.1", 1e-2, "is one element of a list", "give the whole list optim.eps"),
        ("full_run.warmup_stps", 3, "no such key", "did you mean 'full_run.warmup_steps'?"),
        ("nothing.at_all", 3, "no such key", "--cfg job lists the keys"),
        ("recipe.width.x", 3, "no such key", ""),
        ("recipe.deep.er", 3, "no such key", ""),
        ("precison", "bf16", "no such key", "did you mean 'precision'?"),
        ("optim.beta1", 0.9, "is the recipe's own value already: no arm", "give another value"),
        ("full_run.schedule_steps", 400.0, "is the recipe's own value already: no arm", ""),
        ("recipe.width", 8, "pilot.cooldown_steps follows it by interpolation, and", "a value of"),
        ("pilot.cooldown_steps", 8, "cannot be an arm: it defines the pilot", "optim.*, batch.*"),
        ("out_dir", "x", "cannot be an arm: it names the folder", ""),
        ("arms.add", [], "cannot be an arm: it says which arms there are", ""),
        ("gates.strict", True, "cannot be an arm: it judges the baseline", ""),
        ("engine.device", "cpu", "cannot be an arm: it runs every arm", ""),
        ("recipe.module", "x", "cannot be an arm: it is the code", ""),
        ("full_run.start_step", 3, "cannot be an arm: it is the step", ""),
        ("", 1, "no such key", ""),
    ],
)
def test_what_is_no_single_leaf_is_refused(key: str, value: Any, rule: str, remedy: str) -> None:
    mistake = _refused(key, value)
    assert mistake.rule.startswith(rule)
    assert remedy in mistake.remedy
    assert mistake.value == yaml.safe_dump(value, default_flow_style=True).splitlines()[0]


def test_a_key_inside_an_interpolated_section_names_the_other_section() -> None:
    text = TEXT.replace("note: null", "note: ${optim}")
    assert "change optim.eps instead" in _refused("recipe.note.eps", 1, text).remedy
    changed = change_leaf(text, "optim.beta1", 0.8)
    assert changed.follows == {
        "optim.betas": "[0.8, 0.999]",
        "recipe.note.beta1": "0.8",
        "recipe.note.betas": "[0.8, 0.999]",
    }
    assert _differences(changed, _resolved(text)) == {"optim.beta1", *changed.follows}


def test_a_section_that_follows_a_dictionary_follows_it_whole() -> None:
    text = TEXT.replace("note: null", "note: ${recipe.lora}")
    changed = change_leaf(text, "recipe.lora", None)
    assert changed.tree["recipe"]["note"] is None
    assert changed.follows == {
        "recipe.note": "null",
        "recipe.note.rank": "absent",
        "recipe.note.alpha": "absent",
    }


def test_what_vanishes_from_a_made_section_is_gone() -> None:
    text = TEXT.replace("note: null", 'note: "${oc.create:${recipe.spec}}"\n  spec: "{a: 1, b: 2}"')
    resolved = _resolved(text)
    assert resolved["recipe"]["note"] == {"a": 1, "b": 2}
    changed = change_leaf(text, "recipe.spec", "{a: 3}", resolved=resolved)
    assert changed.tree["recipe"]["note"] == {"a": 3}
    assert changed.follows == {"recipe.note.a": "3", "recipe.note.b": "absent"}
    assert resolved == _resolved(text)


def test_the_time_the_environment_and_the_baseline_stay_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = TEXT.replace("note: null", "note: ${now:%H:%M:%S.%f}")
    text = text.replace("[a, ", "['${oc.env:PILOT_TEST_TAG}', ")
    text = text.replace("uri: null", "uri: '${recipe.name}-${now:%f}'")
    resolved = _resolved(
        text.replace("${now:%H:%M:%S.%f}", "noon")
        .replace("${now:%f}", "1")
        .replace("${oc.env:PILOT_TEST_TAG}", "as it was")
    )
    monkeypatch.delenv("PILOT_TEST_TAG", raising=False)  # resumed in another shell
    changed = change_leaf(text, "optim.beta1", 0.8, resolved=resolved)
    assert changed.follows == {"optim.betas": "[0.8, 0.999]"}
    assert _differences(changed, resolved) == {"optim.beta1", "optim.betas"}
    assert changed.tree["recipe"]["note"] == "noon"
    assert changed.tree["recipe"]["tags"] == ["as it was", "tiny"]
    assert changed.tree["tracking"]["uri"] == "tiny-1"
    # What is made from outside may still be the arm's variable, and links beside it still count.
    assert change_leaf(text, "recipe.note", "one", resolved=resolved).follows == {}
    assert "change recipe.name instead" in _refused("recipe.tags", ["b"], text).remedy
    monkeypatch.setenv("PILOT_TEST_TAG", "x")
    assert change_leaf(text, "optim.beta1", 0.8).follows == {"optim.betas": "[0.8, 0.999]"}


def test_hydras_resolvers_are_there_without_hydra() -> None:
    code = (
        "from pilot.arms.one_variable import change_leaf\n"
        "text = 'recipe: {a: \"${now:%Y}-${optim.b}\"}\\noptim: {b: 1}\\nout_dir: x\\n'\n"
        "import sys; assert 'hydra' not in sys.modules\n"
        "print(change_leaf(text, 'optim.b', 2).follows)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("{'recipe.a': '2") and done.stdout.endswith("-2'}\n")


def test_another_resolver_counts_as_a_link() -> None:
    text = TEXT.replace("note: null", 'note: "${oc.select:optim.beta1}"')
    assert _refused("recipe.note", 1, text).rule.startswith("is made by ${oc.select:optim.beta1}")
    assert change_leaf(text, "optim.beta1", 0.8).follows["recipe.note"] == "0.8"


def test_what_cannot_be_resolved_is_refused() -> None:
    text = TEXT.replace("note: null", 'note: "${recipe.lora.rank}"')
    mistake = _refused("recipe.lora", None, text)
    assert mistake.rule.startswith("the configuration must resolve with it: ")


@pytest.mark.parametrize("value", ["${x}", "a ${optim.beta1} b", "\\${x}", "\\\\${x} \\", "$", "{"])
def test_text_with_dollars_is_taken_as_it_is(value: str) -> None:
    assert change_leaf(TEXT, "recipe.note", value).tree["recipe"]["note"] == value
    nested = {"a": [value]}
    assert change_leaf(TEXT, "recipe.note", nested).tree["recipe"]["note"] == nested
    text = yaml.safe_dump({**_plain(), "precision": value.replace("${", "\\${")})
    if not value.startswith("\\"):
        changed = change_leaf(text, "pilot.seed", 1, resolved=_resolved(text))
        assert changed.tree["precision"] == value


def test_nan_equals_itself_and_true_is_not_one() -> None:
    text = TEXT.replace("width: 4", "width: .nan").replace("cooldown_steps: ", "x: ")
    assert change_leaf(text, "optim.beta1", 0.8).follows == {"optim.betas": "[0.8, 0.999]"}
    assert "own value" in _refused("recipe.width", math.nan, text).rule
    text = TEXT.replace("width: 4", "width: 1").replace("cooldown_steps: ", "x: ")
    assert change_leaf(
        text.replace('x: "${recipe.width}"', "x: 1"), "recipe.width", True
    ).follows == {"batch.sequence_length": "true"}


def test_arms_with_dotted_keys_survive_in_the_tree() -> None:
    changed = change_leaf(TEXT, "pilot.seed", 1)
    assert changed.tree["arms"]["add"] == [{"optim.beta2": 0.95}]
    again = change_leaf(OmegaConf.to_yaml(OmegaConf.create(TEXT)), "pilot.seed", 1)
    assert again == changed
