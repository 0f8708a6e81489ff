#!/usr/bin/env bash
# IMDb with the unlabelled reviews, for each seed:
#   1. a model of five words learns which words stand beside them, in all reviews but those of the test half (reviews_neighbours.yaml);
#   2. three classifiers have its vectors (imdb_neighbours.yaml) and label the reviews without labels by their mean;
#   3. one network is trained on these labels and the given ones (imdb_self_training.yaml).
# The linear model and the network without the unlabelled reviews stand beside it. Texts are written into DATA (default
# /tmp/metaformer_texts) from the archive that IMDB names, which must have the unlabelled ones.
#
#   IMDB=aclImdb_v1.tar.gz experiments/imdb_unlabelled.sh
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/imdb_texts.sh
source "$experiments/lib/imdb_texts.sh"

[[ -z ${SLURM_ARRAY_TASK_ID:-} ]] || die 2 "no Slurm array: classifiers begin with runs that must have ended before"
write_texts reviews unlabelled
texts="$DATA/unlabelled/texts.jsonl"

for seed in $SEEDS; do
  run imdb_linear.yaml --set data.validation_fraction=0.05 --set "train.seed=$seed"
done
first_neighbours=${#run_names[@]}
for seed in $SEEDS; do
  run reviews_neighbours.yaml --set "data.path=$DATA/reviews/train.jsonl" --set "data.validation_path=$DATA/reviews/validation.jsonl" \
    --set "train.seed=$seed"
done
neighbours=("${run_names[@]:$first_neighbours}")
finish >/dev/null

first_teacher=${#run_names[@]}
number=0
for seed in $SEEDS; do
  for teacher in 1 2 3; do
    run imdb_neighbours.yaml --set "train.init_from=$RUNS/${neighbours[$number]}" --set "train.seed=$seed$teacher"
  done
  number=$((number + 1))
done
teachers=("${run_names[@]:$first_teacher}")
finish >/dev/null

# What a classifier says of the unlabelled reviews, once.
predict_unlabelled() { # run
  local file=$RUNS/$1/unlabelled.jsonl
  [[ ! -f $file ]] || return 0
  "$PROGRAM" predict --run "$RUNS/$1" --json "$texts" >"$file.part"
  mv -- "$file.part" "$file"
}

number=0
for seed in $SEEDS; do
  predictions=()
  for teacher in "${teachers[@]:$((3 * number)):3}"; do
    predict_unlabelled "$teacher"
    predictions+=("$RUNS/$teacher/unlabelled.jsonl")
  done
  python3 "$experiments/write_pseudo_labels.py" "$texts" "$RUNS/labels-$seed.jsonl" "${predictions[@]}"
  run imdb_self_training.yaml --set "data.extra_path=$RUNS/labels-{seed}.jsonl" --set "train.seed=$seed"
  number=$((number + 1))
done
for seed in $SEEDS; do
  run imdb_regions.yaml --set model.width=512 --set task.head.dropout=0.3 --set "train.seed=$seed"
done
finish
