#!/usr/bin/env bash
# A classifier with 1,000 labelled reviews, from random weights and from the weights of a masked and a causal language model of reviews
# without labels, each as a whole and with frozen blocks. Both learning rates were chosen on the validation split.
# The script writes the reviews into DATA (default /tmp/metaformer_texts) from the archive IMDB, which must contain the
# unlabelled reviews.
#
#   IMDB=aclImdb_v1.tar.gz experiments/pretraining.sh
SEEDS=${SEEDS:-1337 1 2 3 4}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/imdb_texts.sh
source "$experiments/lib/imdb_texts.sh"

[[ -z ${SLURM_ARRAY_TASK_ID:-} ]] || die 2 "not possible as a Slurm array: the classifiers need finished runs of this script"
write_texts reviews small_imdb
reviews=(--set "data.path=$DATA/reviews/train.jsonl" --set "data.validation_path=$DATA/reviews/validation.jsonl")
labelled=(--set "data.path=$DATA/small_imdb/train.jsonl" --set "data.validation_path=$DATA/small_imdb/validation.jsonl"
  --set "data.test_path=$DATA/small_imdb/test.jsonl")

# Random weights, with the vocabulary of the other two.
untrained=(--set train.steps=1 --set train.learning_rate=1e-30 --set train.schedule=constant)
for seed in $SEEDS; do run reviews_masked.yaml "${reviews[@]}" "${untrained[@]}" --set "train.seed=$seed"; done
run reviews_masked.yaml "${reviews[@]}"
run reviews_causal.yaml "${reviews[@]}"
pretrained=("${run_names[@]}")
finish >/dev/null

# One path for all seeds, so that their runs are one group.
number=0
for seed in $SEEDS; do
  ln -sfn "${pretrained[$number]}" "$RUNS/untrained-$seed"
  number=$((number + 1))
done
for seed in $SEEDS; do
  for source in "untrained-{seed}" "${pretrained[-2]}" "${pretrained[-1]}"; do
    from=(--set "train.init_from=$RUNS/$source" --set "train.seed=$seed")
    run imdb_small.yaml "${labelled[@]}" "${from[@]}"
    run imdb_small.yaml "${labelled[@]}" "${from[@]}" --set 'train.freeze=[transformer.blocks]' --set train.learning_rate=1e-3
  done
done
finish
