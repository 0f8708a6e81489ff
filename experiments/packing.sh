#!/usr/bin/env bash
# Tests whether a causal language model needs a mask between the texts in a row: packed film reviews with and without it. Evaluations
# always keep reviews separate. The script writes the reviews into DATA (default /tmp/metaformer_texts) from the archive IMDB.
#
#   IMDB=aclImdb_v1.tar.gz experiments/packing.sh
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/imdb_texts.sh
source "$experiments/lib/imdb_texts.sh"

write_texts reviews
for seed in $SEEDS; do
  for separate in true false; do
    run reviews_causal.yaml --set "data.path=$DATA/reviews/train.jsonl" --set "data.validation_path=$DATA/reviews/validation.jsonl" \
      --set "data.packing={kind: spfhp, depth: 0, separate: $separate}" --set train.batch_size=8 --set train.steps=1500 \
      --set train.eval_interval=1500 --set "train.seed=$seed"
  done
done
finish
