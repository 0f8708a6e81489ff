#!/usr/bin/env bash
# A language model of 98 million parameters on film reviews, trained for about ten minutes on one H200 (an estimate). Prints the card,
# the loss, tokens/s, the fraction of the card's peak that forward and backward products use, also of steps with and without dropout
# alone, and a sampled text. Needs a GPU. The script writes the reviews into DATA (default /tmp/metaformer_texts) from the archive
# IMDB, which must contain the unlabelled reviews.
#
#   IMDB=aclImdb_v1.tar.gz experiments/reviews_gpu.sh
#   PEAK=989e12    operations per second of the card's bf16 products, as its maker states them (H100, H200: 989e12)
SEEDS=${SEEDS:-1337}
PEAK=${PEAK:-989e12}
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
# shellcheck source=experiments/lib/imdb_texts.sh
source "$experiments/lib/imdb_texts.sh"

cards=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || die 2 "$sweep trains on a GPU, and there is none here"
((JOBS == 1)) || die 2 "$sweep measures times: JOBS must be 1"
write_texts reviews
reviews=(--set "data.path=$DATA/reviews/train.jsonl" --set "data.validation_path=$DATA/reviews/validation.jsonl")
for seed in $SEEDS; do run reviews_gpu_llama.yaml "${reviews[@]}" --set "train.seed=$seed"; done

# speed LABEL: reads an object with tokens_per_second from standard input; an operation of the forward pass has two in backward.
speed() {
  python3 -c '
import json, sys
speed, (label, operations, peak) = json.load(sys.stdin)["tokens_per_second"], sys.argv[1:]
fraction = 3 * float(operations) * speed / float(peak)
print(f"{label}: {speed:,.0f} tokens/s, {fraction:.1%} of {float(peak) / 1e12:,.0f} TFLOP/s")' "$1" "$operations" "$PEAK"
}

printf '%s, %s\n\n' "$(head -n 1 <<<"$cards")" "$(date -u +%Y-%m-%d)"
finish --format markdown \
  --columns val_loss,bits_per_byte,tokens_per_second,operations_per_token,ms_per_step,train_seconds,peak_memory_bytes,parameters
run_folder=$RUNS/${run_names[0]}
[[ -f $run_folder/summary.json ]] || die 1 "$run_folder: no such run; the rows of $RESULTS were trained elsewhere"
operations=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["operations_per_token"])' <"$run_folder/summary.json")
echo
speed "training" <"$run_folder/summary.json"
for dropout in 0 0.2; do
  "$PROGRAM" bench step --config reviews_gpu_llama.yaml "${reviews[@]}" --set "model.dropout=$dropout" --rounds 3 --steps 20 --json |
    speed "steps alone, dropout $dropout"
done
echo
"$PROGRAM" sample --run "$run_folder" --prompt "This film" --tokens 300
