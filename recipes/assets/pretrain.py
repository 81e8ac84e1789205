"""Train the bundled tokenizer and 1 M parameter Llama on standard-library text, on one CPU core.

Run: ``python recipes/assets/pretrain.py [--out FOLDER]`` (about 170 CPU-seconds, no network).
The text holds no instruction pair and no chat format; see ``build_pairs.py`` for the pairs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from stdlib_docs import PAIR_PACKAGES, library_docs, sha256_text, stdlib_root, topic_texts
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB_TOKENS = 2048
POSITIONS_TOKENS = 512
CONTEXT_TOKENS = 256
BATCH_ROWS = 8
STEPS = 600
WARMUP_STEPS = 30
PEAK_LR = 3e-3
CLIP_NORM = 1.0
SEED = 0
FILE_MODE = 0o644
HELD_OUT_ONE_IN = 25
"""One text in this many, chosen by hash, is held out of training."""

SPECIAL_TOKENS = ["<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\n' }}"
    "{% if m['role']=='assistant' %}"
    "{% generation %}{{ m['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ m['content'] }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
"""Chat format; the answer and its end-of-text token are the ``generation`` span."""

CARD_TAIL = "## Learning rates on the bundled pairs"
"""From this heading on, an existing card's text is kept."""


@dataclass(frozen=True)
class Corpus:
    """Pre-training text; each string is one document."""

    train: list[str]
    held_out: list[str]


@dataclass(frozen=True)
class Result:
    """What a pre-training run ended with; losses in nats per token."""

    held_out_loss: float
    train_tokens: int
    held_out_tokens: int
    cpu_s: float


def load_corpus() -> Corpus:
    """Language-reference topics and module docstrings of the packages that give no pair.

    Prose only: docstrings of classes and functions, most of the pairs' answers, stay unseen.
    """
    root = stdlib_root()
    docs = [doc for doc in library_docs(root) if doc.package not in PAIR_PACKAGES]
    texts = topic_texts(root) + [doc.text for doc in docs if doc.kind == "module"]
    held = [int(sha256_text(text), 16) % HELD_OUT_ONE_IN == 0 for text in texts]
    return Corpus(
        [text for text, out in zip(texts, held, strict=True) if not out],
        [text for text, out in zip(texts, held, strict=True) if out],
    )


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE of VOCAB_TOKENS tokens with the special tokens and the chat template."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_TOKENS,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=SPECIAL_TOKENS[PAD_ID],
        bos_token=SPECIAL_TOKENS[BOS_ID],
        eos_token=SPECIAL_TOKENS[EOS_ID],
        model_max_length=POSITIONS_TOKENS,
        padding_side="right",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def new_model() -> LlamaForCausalLM:
    """The untrained model: 4 layers of width 128, tied embeddings, about 1.05 M parameters."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCAB_TOKENS,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=POSITIONS_TOKENS,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )
    return LlamaForCausalLM(config)


def pack(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> torch.Tensor:
    """``<s> text </s>`` of all texts on end, cut into rows: int64 [rows, CONTEXT_TOKENS]."""
    stream: list[int] = []
    for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]:
        stream += [BOS_ID, *ids, EOS_ID]
    rows = len(stream) // CONTEXT_TOKENS
    return torch.tensor(stream[: rows * CONTEXT_TOKENS]).view(rows, CONTEXT_TOKENS)


def learning_rate(step: int) -> float:
    """Linear warm-up over WARMUP_STEPS, then a cosine to 0 at STEPS."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return PEAK_LR * warm * 0.5 * (1.0 + math.cos(math.pi * step / STEPS))


def mean_loss(model: LlamaForCausalLM, rows: torch.Tensor) -> float:
    """Mean next-token loss in nats over ``rows`` (int64 [rows, CONTEXT_TOKENS])."""
    model.eval()
    with torch.no_grad():
        losses = [float(model(input_ids=row[None], labels=row[None]).loss) for row in rows]
    return sum(losses) / len(losses)


def train(model: LlamaForCausalLM, rows: torch.Tensor) -> None:
    """STEPS steps of AdamW on reshuffled passes over ``rows`` (int64 [rows, CONTEXT_TOKENS])."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR)
    generator = torch.Generator().manual_seed(SEED)
    order: list[int] = []
    for step in range(STEPS):
        if len(order) < BATCH_ROWS:
            order = torch.randperm(len(rows), generator=generator).tolist()
        batch, order = rows[order[:BATCH_ROWS]], order[BATCH_ROWS:]
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


def run() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast, Result]:
    """Train tokenizer and model from nothing; same versions and thread count, same result."""
    started = time.process_time()
    corpus = load_corpus()
    tokenizer = train_tokenizer(corpus.train)
    rows, held_out = pack(tokenizer, corpus.train), pack(tokenizer, corpus.held_out)
    model = new_model()
    train(model, rows)
    loss = mean_loss(model, held_out)
    cpu_s = time.process_time() - started
    return model, tokenizer, Result(loss, rows.numel(), held_out.numel(), cpu_s)


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Save the tokenizer files; the class name is the one that older transformers know too."""
    tokenizer.save_pretrained(out)
    path = out / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def card_text(out: Path, parameters: int, result: Result) -> str:
    """Text of the model card; keeps what an existing card says from CARD_TAIL on."""
    old = out / "README.md"
    tail = old.read_text(encoding="utf-8").partition(CARD_TAIL)[2] if old.exists() else "\n"
    digests = {
        name: hashlib.sha256((out / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "tokenizer.json")
    }
    template = Path(__file__).with_name("model_card.md").read_text(encoding="utf-8")
    head = template.format(
        parameters=f"{parameters:,}",
        python=platform.python_version(),
        torch=torch.__version__,
        steps=STEPS,
        batch_tokens=BATCH_ROWS * CONTEXT_TOKENS,
        context=CONTEXT_TOKENS,
        vocab=VOCAB_TOKENS,
        passes=f"{STEPS * BATCH_ROWS * CONTEXT_TOKENS / result.train_tokens:.1f}",
        train_tokens=f"{result.train_tokens:,}",
        held_out_tokens=f"{result.held_out_tokens:,}",
        loss=f"{result.held_out_loss:.3f}",
        uniform=f"{math.log(VOCAB_TOKENS):.2f}",
        cpu_s=f"{result.cpu_s:.0f}",
        model_sha256=digests["model.safetensors"],
        tokenizer_sha256=digests["tokenizer.json"],
    )
    return f"{head}\n{CARD_TAIL}{tail}"


def main() -> None:
    """Command line: train, then write the weights, tokenizer files and model card."""
    parser = argparse.ArgumentParser(description=__doc__)
    default_out = Path(__file__).parent / "llama_1m"
    parser.add_argument("--out", type=Path, default=default_out, help="folder to write to")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, tokenizer, result = run()
    options.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(options.out)
    (options.out / "model.safetensors").chmod(FILE_MODE)
    save_tokenizer(tokenizer, options.out)
    card = card_text(options.out, model.num_parameters(), result)
    (options.out / "README.md").write_text(card, encoding="utf-8")
    print(f"held-out loss {result.held_out_loss:.3f}, {result.cpu_s:.0f} CPU-seconds")


if __name__ == "__main__":
    main()
