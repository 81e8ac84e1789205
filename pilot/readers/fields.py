"""Which quantity a key of a structured log names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from pilot.readers.points import ColumnKey
from pilot.series.types import (
    EPOCH,
    GRAD_NORM,
    LEARNING_RATE,
    LOSS,
    LOSS_SCALE,
    SKIPPED,
    TOKENS,
)


def _ordered(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# In order of trust: an optimizer step before a row counter, both before a place within an epoch.
STEP_KEYS = _ordered(
    "global_step step current_steps current_step num_updates update_step optimizer_step opt_step "
    "update iter iteration iters it _step batch batch_idx batch_id"
)
# In order of trust too; a mean over an epoch is the last choice.
LOSS_NAMES = _ordered(
    "loss lm_loss loss_step step_loss batch_loss avg_loss loss_avg ce_loss cross_entropy_loss "
    "cross_entropy language_cross_entropy global_avg_loss nll_loss nll loss_total total_loss"
)
_NAMES = {
    GRAD_NORM: "grad_norm gradient_norm gnorm total_norm total_grad_norm global_grad_norm gradnorm "
    "grad_norm_global grad_norm_total global_norm l2_norm_grad_global grad_norm_step grad_l2_norm",
    LEARNING_RATE: "lr learning_rate learningrate lr_abs lr_step lr_group_0 lr_group0 lr_0 "
    "lr_pg1 learning_rate_group0 learning_rate_0",
    LOSS_SCALE: "loss_scale amp_scale scaler_scale grad_scale",
    SKIPPED: "skipped step_skipped skipped_step skipped_iter overflow",
    TOKENS: "num_tokens tokens total_tokens num_input_tokens_seen tokens_seen consumed_tokens "
    "tokens_total n_tokens_seen",
    EPOCH: "epoch current_epoch epochs",
}
_QUANTITY = {name: quantity for quantity, names in _NAMES.items() for name in names.split()}
_LOSS_RANK = {name: rank for rank, name in enumerate(LOSS_NAMES)}
_STEP_RANK = {name: rank for rank, name in enumerate(STEP_KEYS)}


_SCOPES = _words(
    "trainer learner metrics stats log logs scalars data optim optimizer amp info state losses "
    "loss_metrics result results actor throughput"
)
_TRAIN = _words("train training")
_VALIDATION = _words("eval evaluation val valid validation test dev heldout")
# A best value so far, a running mean, a limit, a term of the loss: not the loss or norm of a step.
_NOT_A_POINT = _words(
    "best min max ema smooth smoothed target clip clipped std var median initial final delta ratio "
    "time threshold count"
)
_NOT_A_LOSS = _NOT_A_POINT | _words(
    "aux penalty scale type weight weights coef fn z kl entropy balance balancing router reg value "
    "vf epoch"
)
# "closs" (LLaMA-Adapter), "mloss", "dloss": a short prefix glued to the word. English words, and
# the loss of a value function or a KL divergence, are not meant.
_GLUED = re.compile(r"(?!gloss|floss|vloss|klloss|vfloss|pgloss)[a-z]{1,2}loss")
_GLUED_SET = re.compile(
    r"(?i)^(train|val|valid|validation|eval|test|dev)[_-]?((?:avg|mean)?)[_-]?loss$"
)
# The mean of an epoch, when it ends: "train_epoch_loss", "eval_epoch_loss", "epoch_loss".
_OF_EPOCH = re.compile(r"(?i)(^|[/_\- .])epoch[_ ]?(?=(?:avg[_ ]|mean[_ ])?loss$)")
EPOCH_MEAN_TIER = 1
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BREAK = re.compile(r"[^A-Za-z0-9]+")
_KIND = "evaluation|eval|validation|valid|val|dev|test|heldout"
_SET_START = re.compile(rf"(?i)^(?:{_KIND})(?:[/_\- .]+|$)")
_SET_END = re.compile(rf"(?i)(?:^|[/_\- .]+)(?:{_KIND})$")
_LOSS_START = re.compile(r"(?i)^(?:metrics|losses|loss|nll)(?:[/_\- .]+|$)")
_LOSS_END = re.compile(
    r"(?i)(?:^|[/_\- .])(?:(?:lm|avg|mean|total|ce|token|language)[/_\- .]?)*"
    r"(?:cross[_ ]?entropy[_ ]?)?(?:loss|nll|cross[_ ]?entropy)$"
)


@lru_cache(maxsize=8192)
def column(key: str) -> ColumnKey | None:
    """The quantity that a key names; None: none that matters (runtime, accuracy, memory, ...)."""
    if len(key) > 200:
        return None
    key = key.strip()
    plain = _OF_EPOCH.sub(r"\1", _GLUED_SET.sub(r"\1_loss", key))
    is_held_out = _is_validation(plain)
    found = _validation(plain, _tokens(plain)) if is_held_out else _train(plain, _plain(plain))
    if found is None or plain == key:
        return found
    is_mean = _OF_EPOCH.search(key) is not None and not is_held_out
    return found._replace(alias=key, tier=EPOCH_MEAN_TIER if is_mean else found.tier)


def is_epoch_mean(key: ColumnKey) -> bool:
    """Whether a column is a training loss that is a mean over an epoch."""
    return key.name == LOSS and key.tier == EPOCH_MEAN_TIER and not key.is_validation


@lru_cache(maxsize=8192)
def step_rank(key: str) -> int | None:
    """How far a key is trusted to be the step (0: most); None: it is none."""
    if key.strip().lower() == "_step":
        return _STEP_RANK["_step"]
    return _STEP_RANK.get("_".join(_plain(key))) if len(key) <= 200 else None


def _tokens(text: str) -> list[str]:
    return [token for token in _BREAK.split(_CAMEL.sub("_", text).lower()) if token]


def _plain(key: str) -> list[str]:
    """The words of a key without those that only say that it is of the training."""
    parts = [part for part in key.split("/") if part]
    scoped = [part for part in parts[:-1] if part.strip().lower() not in _SCOPES] + parts[-1:]
    return [token for part in scoped for token in _tokens(part) if token not in _TRAIN]


def _is_validation(key: str) -> bool:
    for part in key.split("/"):
        tokens = _tokens(part)
        if tokens and (tokens[0] in _VALIDATION or tokens[-1] in _VALIDATION):
            return True
        if tokens[:2] in (["held", "out"], ["hold", "out"]):
            return True
    return False


def _train(key: str, words: list[str]) -> ColumnKey | None:
    """The training quantity of a plain name. Tier 0: it always means it; higher: it is likely."""
    name, length = "_".join(words), len(key)
    if name in _LOSS_RANK:
        return ColumnKey(False, LOSS, 0, 1000 * _LOSS_RANK[name] + length, key)
    if name in _QUANTITY:
        return ColumnKey(False, _QUANTITY[name], 0, length, key)
    found = set(words)
    if name == "loss_epoch":
        return ColumnKey(False, LOSS, EPOCH_MEAN_TIER, length, key)
    if len(words) == 1 and _GLUED.fullmatch(name):
        return ColumnKey(False, LOSS, 3, length, key)
    if "loss" in found and not found & _NOT_A_LOSS:
        return ColumnKey(False, LOSS, 2, length, key)
    if {"grad", "norm"} <= found and len(words) <= 4 and not found & _NOT_A_POINT:
        return ColumnKey(False, GRAD_NORM, 1, length, key)
    is_rate = words[:1] == ["lr"] or words[-1:] == ["lr"] or words[:2] == ["learning", "rate"]
    if is_rate and not found & _NOT_A_POINT:
        return ColumnKey(False, LEARNING_RATE, 1, length, key)
    return None


def _validation(key: str, tokens: list[str]) -> ColumnKey | None:
    """The validation set of a key such as ``eval_NAME_loss``, ``val/NAME/loss``, ``loss/val``."""
    is_entropy = "entropy" in tokens and "cross" in tokens
    if not ("loss" in tokens or tokens[-1] == "nll" or is_entropy) or set(tokens) & _NOT_A_POINT:
        return None
    if "loss" in tokens[1:] and not is_entropy and tokens[tokens.index("loss") - 1] in _NOT_A_LOSS:
        return None
    per_batch = tokens[-1] == "step"
    name = re.sub(r"(?i)[_/](?:step|epoch)$", "", key)
    name = _LOSS_START.sub("", _LOSS_END.sub("", name))
    kind = _SET_START.match(name) or _SET_END.search(name)
    if kind is not None:
        name = name[: kind.start()] + name[kind.end() :]
    name = _LOSS_START.sub("", name).strip("/_-. ")
    is_test = kind is not None and "test" in kind[0].lower()
    return ColumnKey(True, name or ("test" if is_test else ""), int(per_batch), len(key), key)


_PREFERENCE = _words(
    "rewards/chosen rewards/margins rewards/accuracies logps/chosen log_odds_ratio"
)
_RL = _words(
    "reward reward_std reward_mean objective/kl reverse_kl advantages mean_reward kl_divergence"
)
_RL_STARTS = ("completions/", "clip_ratio", "rewards/", "actor/", "critic/", "ppo/", "rollout/")
_LM = _words("mean_token_accuracy ppl perplexity")


def objective(keys: Iterable[str]) -> str:
    """What a run optimises, by what it logs: ``preference``, ``rl``, ``lm`` or ``unknown``."""
    names = {key.removeprefix("train/").removeprefix("eval_").lower() for key in keys}
    if names & _PREFERENCE or {"margin", "mean_reward"} <= names:
        return "preference"
    if names & _RL or any(name.startswith(_RL_STARTS) for name in names):
        return "rl"
    return "lm" if names & _LM else "unknown"
