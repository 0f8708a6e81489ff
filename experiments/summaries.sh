#!/usr/bin/env bash
# Synopses of Debian's packages from their descriptions: the mixers with scores, in all three places.
#
#   DATA=FOLDER   folder of debian_descriptions, which write_descriptions.py writes if it is missing; default /tmp/metaformer_texts
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

DATA=$(realpath -m -- "${DATA:-/tmp/metaformer_texts}")
[[ -d $DATA/debian_descriptions ]] || "$experiments/write_descriptions.py" "$DATA/debian_descriptions"
cd -- "$DATA"  # paths in the configs are relative to it
for seed in $SEEDS; do
  for mixer in scaled_dot_product metric_published quadratic_published; do
    run "summaries_$mixer.yaml" --set "train.seed=$seed"
  done
done
finish --metrics test_rouge_1,test_rouge_2,test_rouge_l,val_loss
