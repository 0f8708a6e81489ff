#!/usr/bin/env bash
# Synopses of Debian's packages from their descriptions: metric attention with own values and a normalised p, and scaled dot product
# with and without normalised queries and keys, in all three places; quadratic attention last.
#
#   DATA=FOLDER   folder of debian_descriptions, which write_descriptions.py writes if it is missing; default /tmp/metaformer_texts
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"

DATA=$(realpath -m -- "${DATA:-/tmp/metaformer_texts}")
[[ -d $DATA/debian_descriptions ]] || "$experiments/write_descriptions.py" "$DATA/debian_descriptions"
cd -- "$DATA"  # paths in the configs are relative to it
places=(model.mixer model.encoder.mixer model.cross_mixer)
for seed in $SEEDS; do
  task=(summaries_scaled_dot_product.yaml)
  run_with scaled_dot_product
  run_with scaled_dot_product qk_norm=true
  run summaries_metric.yaml --set "train.seed=$seed"
done
for seed in $SEEDS; do run summaries_quadratic.yaml --set "train.seed=$seed"; done
finish --metrics test_rouge_1,test_rouge_2,test_rouge_l,val_loss
