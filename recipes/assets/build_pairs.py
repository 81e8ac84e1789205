"""Build the bundled instruction pairs: a question about the standard library -> its docstring.

Run: ``python recipes/assets/build_pairs.py [--out FOLDER]``. Same interpreter, same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import platform
from collections import Counter
from pathlib import Path

from stdlib_docs import (
    MIN_ANSWER_CHARS,
    NEW_PACKAGES,
    PAIR_PACKAGES,
    Doc,
    library_docs,
    sha256_text,
    stdlib_root,
)

VALIDATION_ONE_IN = 10
"""One answer in this many, chosen by hash, is validation (packages that are also trained on)."""

GZIP_LEVEL = 9
FORMS = ("plain", "signed", "input")
SPLITS = ("train", "validation", "validation_new_packages")
Row = dict[str, str]

PLAIN = {
    "module": (
        "What is the module {name} for?",
        "Describe the Python module {name}.",
        "What does {name} provide?",
    ),
    "class": (
        "What is the class {name}?",
        "Describe the class {qualname} of {module}.",
        "What is {name} used for?",
    ),
    "function": (
        "What does the function {name} do?",
        "Describe the function {qualname} of {module}.",
        "Explain what {name} does.",
    ),
    "method": (
        "What does the method {qualname} of {module} do?",
        "Describe the method {name}.",
        "Explain what {name} does.",
    ),
}
"""Questions that only name the object."""

SIGNED = {
    "class": ("Explain class {qualname}({signature}) of {module}.",),
    "function": (
        "What does {name}({signature}) do?",
        "Explain the call {qualname}({signature}) from {module}.",
    ),
    "method": (
        "What does {qualname}({signature}) in {module} do?",
        "Explain the method {name}({signature}).",
    ),
}
"""Questions that hold the signature."""

WITH_INPUT = {
    "class": ("Write the docstring of this class.", "What is this class of {module} for?"),
    "function": ("Write the docstring of this function.", "What does this {module} function do?"),
    "method": ("Write the docstring of this method.", "What does this {module} method do?"),
}
"""Questions whose signature stands in the row's ``input``."""


def _code(doc: Doc) -> str:
    keyword = "class" if doc.kind == "class" else "def"
    return f"# {doc.module}\n{keyword} {doc.qualname}({doc.signature})"


def make_row(doc: Doc) -> Row:
    """One Alpaca row; a hash of the object's name picks its form and its template."""
    pick = int(sha256_text(doc.name), 16)
    form, pick = FORMS[pick % len(FORMS)], pick // len(FORMS)
    templates: tuple[str, ...] = PLAIN[doc.kind]
    extra = ""
    if doc.signature and form == "signed":
        templates = SIGNED[doc.kind]
    elif doc.signature and form == "input":
        templates, extra = WITH_INPUT[doc.kind], _code(doc)
    fields = {"name": doc.name, "qualname": doc.qualname, "module": doc.module}
    question = templates[pick % len(templates)].format(signature=doc.signature, **fields)
    return {"instruction": question, "input": extra, "output": doc.text, "source": doc.package}


def split_of(doc: Doc) -> str:
    """Name of the split that a pair belongs to."""
    if doc.package in NEW_PACKAGES:
        return "validation_new_packages"
    return "train" if int(doc.answer_hash, 16) % VALIDATION_ONE_IN else "validation"


def build_splits(docs: list[Doc]) -> dict[str, list[Row]]:
    """Rows of each split in answer-hash order, so that any prefix is a fair sample."""
    splits: dict[str, list[Row]] = {name: [] for name in SPLITS}
    for doc in sorted(docs, key=lambda doc: doc.answer_hash):
        if doc.package in PAIR_PACKAGES:
            splits[split_of(doc)].append(make_row(doc))
    return splits


def write_rows(path: Path, rows: list[Row]) -> str:
    """Write gzip JSON Lines without a time stamp or file name; returns the file's SHA-256."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    data = gzip.compress(text.encode(), compresslevel=GZIP_LEVEL, mtime=0)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _percentile(values: list[int], percent: int) -> int:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def _split_table(splits: dict[str, list[Row]], digests: dict[str, str]) -> list[str]:
    head = "| file | rows | with input | answer characters: mean / median / p90 / max |"
    lines = [head, "| --- | ---: | ---: | ---: |"]
    for name, rows in splits.items():
        chars = [len(row["output"]) for row in rows]
        middle, high = _percentile(chars, 50), _percentile(chars, 90)
        spread = f"{sum(chars) / len(chars):.0f} / {middle} / {high} / {max(chars)}"
        with_input = sum(bool(row["input"]) for row in rows)
        lines.append(f"| `{name}.jsonl.gz` | {len(rows)} | {with_input} | {spread} |")
    lines += ["", "| file | sha256 |", "| --- | --- |"]
    lines += [f"| `{name}.jsonl.gz` | `{digest}` |" for name, digest in digests.items()]
    return lines


def _source_table(splits: dict[str, list[Row]]) -> list[str]:
    counts = {name: Counter(row["source"] for row in rows) for name, rows in splits.items()}
    total = sum(counts.values(), Counter())
    lines = ["| source | " + " | ".join(SPLITS) + " |", "| --- | ---: | ---: | ---: |"]
    for source in sorted(total, key=lambda name: (-total[name], name)):
        numbers = " | ".join(str(counts[name][source]) for name in SPLITS)
        lines.append(f"| {source} | {numbers} |")
    return lines


README_HEAD = """# Instruction pairs from the standard library's docstrings

Each row asks about one module, class, function or method of CPython's standard library and
answers with its docstring (`inspect.cleandoc`). Alpaca form, one JSON object a line:
`instruction`, `input` (a signature, or empty), `output`, `source` (top-level package).

Made by `recipes/assets/build_pairs.py` from the library source of **Python {version}**, parsed
with `ast` (no module is imported). The same Python version gives the same rows; the sha256 of
the compressed files also depends on the zlib build.

* Answers under {min_chars} characters are dropped; there is no upper limit, so the long tail of
  lengths is the library's own. Each answer (case and white space normalised) occurs once.
* A hash of the object's name picks the question's wording and whether the signature stands in
  the question, in `input`, or nowhere.
* Rows are in answer-hash order: any prefix is a fair sample.
* Left out: test packages, idlelib, lib2to3, site-packages.

## Split

* `validation_new_packages`: every pair of {new_packages}.
* Of the other pair packages, an answer whose SHA-256 is divisible by {one_in} is `validation`,
  the rest is `train`. No answer occurs in two files.
* All other packages are kept for pre-training `recipes/assets/llama_1m` (their module docstrings
  and `pydoc_data.topics`), which saw no answer of any of the three files (normalised text).

## Counts
"""

LICENCE = """
## Licence

The docstrings are from CPython's standard library, Copyright Python Software Foundation, and
are under the PSF License Agreement (PSF-2.0). Some modules carry further notices of their own;
see "Licenses and Acknowledgements for Incorporated Software" in Python's documentation.

## Rows per source
"""


def readme_text(splits: dict[str, list[Row]], digests: dict[str, str]) -> str:
    """Text of the data card: what, how, counts, digests, licence, per-source table."""
    head = README_HEAD.format(
        version=platform.python_version(),
        min_chars=MIN_ANSWER_CHARS,
        new_packages=", ".join(sorted(NEW_PACKAGES)),
        one_in=VALIDATION_ONE_IN,
    )
    counts = "\n".join(_split_table(splits, digests))
    return f"{head}\n{counts}\n{LICENCE}\n" + "\n".join(_source_table(splits)) + "\n"


def main() -> None:
    """Command line: write the three files and their README."""
    parser = argparse.ArgumentParser(description=__doc__)
    default_out = Path(__file__).parent / "pairs"
    parser.add_argument("--out", type=Path, default=default_out, help="folder to write to")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    splits = build_splits(library_docs(stdlib_root()))
    digests = {name: write_rows(out / f"{name}.jsonl.gz", rows) for name, rows in splits.items()}
    (out / "README.md").write_text(readme_text(splits, digests), encoding="utf-8")
    for name, rows in splits.items():
        print(f"{name}: {len(rows)} rows, sha256 {digests[name]}")


if __name__ == "__main__":
    main()
