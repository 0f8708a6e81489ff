#!/usr/bin/env bash
# IMDb with the unlabelled reviews: regions of words that have learned from their neighbours in reviews without labels, then imdb_regions.yaml
# with them. Reviews are written into DATA (default runs/imdb_neighbours/data) from the archive that IMDB names, which must have
# the unlabelled ones.
#
#   IMDB=aclImdb_v1.tar.gz experiments/imdb_neighbours.sh
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/imdb_texts.sh
source "$experiments/lib/imdb_texts.sh"

[[ -z ${SLURM_ARRAY_TASK_ID:-} ]] || die 2 "no Slurm array: classifiers begin with runs that must have ended before"
write_texts reviews
for seed in $SEEDS; do
  run reviews_neighbours.yaml --set "data.path=$DATA/reviews/train.jsonl" --set "data.validation_path=$DATA/reviews/validation.jsonl" \
    --set "train.seed=$seed"
done
pretrained=("${run_names[@]}")
finish >/dev/null

number=0
for seed in $SEEDS; do
  run imdb_neighbours.yaml --set "train.init_from=$RUNS/${pretrained[$number]}" --set "train.seed=$seed"
  number=$((number + 1))
done
finish
