"""The readers of text logs, one per family of trainers, and the fallback for any other."""

from __future__ import annotations

from pilot.readers import (
    text_bars,
    text_composer,
    text_deepspeed,
    text_fairseq,
    text_generic,
    text_litgpt,
    text_llmc,
    text_megatron,
    text_modded,
    text_nanochat,
    text_nanogpt,
    text_olmo,
    text_torchtitan,
    text_torchtune,
)
from pilot.readers.base import Reader

READERS: tuple[Reader, ...] = (
    text_megatron.READER,
    text_llmc.READER,
    text_nanogpt.READER,
    text_modded.READER,
    text_nanochat.READER,
    text_torchtitan.READER,
    text_olmo.READER,
    text_torchtune.READER,
    text_litgpt.READER,
    text_fairseq.READER,
    text_deepspeed.READER,
    text_composer.READER,
    text_bars.READER,
    text_generic.READER,
)
"""In the order in which ties are broken; the fallback is last."""
