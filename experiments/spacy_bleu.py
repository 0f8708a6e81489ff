#!/usr/bin/env python3
"""BLEU on Multi30k's test2016 as in bentrevett's pytorch-seq2seq: over spaCy's English tokens in lower case, without
smoothing. Targets are generated greedily. Needs the Python packages spacy and sacrebleu.

  experiments/spacy_bleu.py $METAFORMER_DATA/multi30k runs/multi30k/multi30k_scaled_dot_product-*
"""
import argparse
import gzip
import subprocess
from pathlib import Path

import sacrebleu
import spacy

ROOT = Path(__file__).resolve().parent.parent


def lines_of(folder, language):
    with gzip.open(folder / f"test_2016_flickr.{language}.gz", "rt", encoding="utf-8") as lines:
        return lines.read().splitlines()


def tokens_of(lines, tokenizer):
    return [" ".join(token.text.lower() for token in tokenizer(line) if not token.is_space) for line in lines]


def bleu(program, run, sources, references, tokenizer):
    process = subprocess.run([program, "predict", "--run", run], input="\n".join(sources) + "\n", capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{run}: {process.stderr.strip()}")
    written = process.stdout.splitlines()
    return sacrebleu.corpus_bleu(tokens_of(written, tokenizer), [references], smooth_method="none", tokenize="none",
                                 force=True).score


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, metavar="MULTI30K", help="the folder with test_2016_flickr.de.gz")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--program", type=Path, default=ROOT / "scripts/run.sh", help="a built metaformer")
    arguments = parser.parse_args()
    if not (arguments.corpus / "test_2016_flickr.de.gz").is_file():
        raise SystemExit(f"{arguments.corpus}: there is no test_2016_flickr.de.gz in this folder")
    tokenizer = spacy.blank("en").tokenizer
    sources = lines_of(arguments.corpus, "de")
    references = tokens_of(lines_of(arguments.corpus, "en"), tokenizer)
    for run in arguments.runs:
        print(f"{bleu(arguments.program, run, sources, references, tokenizer):.2f}  {run}", flush=True)


if __name__ == "__main__":
    main()
