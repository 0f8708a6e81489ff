#!/usr/bin/env bash
# Two corpora by subwords, Shakespeare and film reviews: the mixers of the field and metric attention with the same recipe and equal
# numbers of parameters (experiments/lib/field_mixers.sh). With the scores of experiments/recall.sh their losses show whether recall
# predicts language (experiments/recall_language_table.py). The reviews are written into DATA from the archive IMDB.
#
#   IMDB=aclImdb_v1.tar.gz experiments/subword_field.sh
SEEDS=${SEEDS:-1 2 3}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/imdb_texts.sh
source "$experiments/lib/imdb_texts.sh"
# shellcheck source=experiments/lib/field_mixers.sh
source "$experiments/lib/field_mixers.sh"

write_texts reviews
reviews=(--set "data={tokenizer: {kind: unigram, vocabulary: 2000, lowercase: false, whitespace: kept}}"
  --set "data.path=$DATA/reviews/train.jsonl" --set "data.validation_path=$DATA/reviews/validation.jsonl")
for seed in $SEEDS; do
  run_field shakespeare_subword_scaled_dot_product.yaml
  run shakespeare_subword_metric.yaml --set "train.seed=$seed"
  run_field shakespeare_subword_scaled_dot_product.yaml "${reviews[@]}"
  run shakespeare_subword_metric.yaml "${reviews[@]}" --set "train.seed=$seed"
done
finish
