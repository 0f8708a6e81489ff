#!/usr/bin/env bash
# Times training steps of metaformer and of the same network in plain PyTorch (scripts/peers/), interleaved in one measurement.
#
#   scripts/bench_against_pytorch.sh [--rounds N] [--small|--large|--reviews|--mixers] [--json FILE]
#
# Three shapes, each in fp32 and bf16: nanoGPT's CPU recipe (4 layers, 4 heads, width 128, context 64, batch 12);
# 6 / 6 / 384 / 256 with batch 8; and the classifier of imdb_scaled_dot_product.yaml on its reviews. In fp32 also a layer of
# Mamba-2 and of the gated delta net (4 heads of 32, context 256, batch 4), beside those of the library transformers. Every
# round runs each program once, metaformer with one and with two slices (train.cpu_slices), PyTorch's language model eager and
# compiled (the classifier has too many shapes, and a compiled gated delta net was not ready after minutes). Prints medians over
# rounds, and the median of the rounds' ratios to PyTorch's fastest step in fp32. A round takes about four minutes on two cores;
# in the first one torch.compile takes some minutes more.
set -euo pipefail
# shellcheck source=scripts/lib/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/environment.sh"
# shellcheck source=scripts/lib/build.sh
source "$root/scripts/lib/build.sh"

rounds=5 shapes='small large reviews mixers' json=''
while (($#)); do
  case $1 in
    --rounds) rounds=${2:?--rounds needs a number}; shift 2 ;;
    --small) shapes=small; shift ;;
    --large) shapes=large; shift ;;
    --reviews) shapes=reviews; shift ;;
    --mixers) shapes=mixers; shift ;;
    --json) json=${2:?--json needs a file}; shift 2 ;;
    *) die 2 "unknown argument $1; see the head of scripts/bench_against_pytorch.sh" ;;
  esac
done

ensure_set_up_for tests
ensure_built metaformer
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# note SHAPE NAME COMMAND...: appends one line of JSON to the results.
note() {
  local shape=$1 name=$2 line
  shift 2
  line=$("$@" 2>/dev/null) || die 1 "failed: $*"
  printf '{"shape": "%s", "name": "%s", "result": %s}\n' "$shape" "$name" "$line" >>"$results"
}

# note_ours SHAPE MIXER PRECISION OPTION...: the program's step with one and with two slices.
note_ours() {
  local shape=$1 mixer=$2 precision=$3 slices
  shift 3
  for slices in 1 2; do
    note "$shape" "metaformer $mixer $precision, slices: $slices" "$build/metaformer" bench step "$@" \
      --set train.precision="$precision" --set train.cpu_slices=$slices --rounds 1 --device cpu --json
  done
}

run_round_of_reviews() {
  local precision mixer archive
  archive=$("$build/metaformer" data fetch imdb) || die 1 "no IMDb archive"
  for precision in fp32 bf16; do
    note reviews "PyTorch $precision" "$python" "$root/scripts/peers/pytorch_classifier_step.py" "$archive" \
      --precision $precision --steps 50 --warmup 200
    for mixer in scaled_dot_product quadratic_published metric_published; do
      note_ours reviews ${mixer%_published} $precision --config "$root/configs/imdb_$mixer.yaml" --steps 50 --warmup 200
    done
  done
}

run_round() {
  local shape=$1 sizes peer_sizes steps warmup precision mixer compile
  if [[ $shape == small ]]; then
    sizes='' peer_sizes='' steps=30 warmup=10
  else
    sizes='--set model.layers=6 --set model.heads=6 --set model.width=384 --set model.context=256 --set train.batch_size=8'
    peer_sizes='--layers 6 --heads 6 --width 384 --context 256 --batch 8' steps=4 warmup=2
  fi
  for precision in fp32 bf16; do
    for compile in '' --compile; do
      # shellcheck disable=SC2086  # split into words
      note "$shape" "PyTorch $precision${compile:+, compiled}" "$python" "$root/scripts/peers/pytorch_step.py" $peer_sizes \
        --precision $precision --steps $steps --warmup $warmup $compile
    done
    for mixer in scaled_dot_product metric_published; do
      # shellcheck disable=SC2086
      note_ours "$shape" ${mixer%_published} $precision --config "$root/configs/shakespeare_$mixer.yaml" $sizes \
        --steps $steps --warmup $warmup
    done
  done
}

run_round_of_mixers() {
  local mixer size='--batch 4 --heads 4 --head-width 32 --context 256 --rounds 5'
  for mixer in mamba2 gated_delta_net; do
    # shellcheck disable=SC2086
    note "$mixer" "PyTorch fp32, a layer of transformers" "$python" "$root/scripts/peers/transformers_layer.py" $mixer $size
    # shellcheck disable=SC2086
    note "$mixer" "metaformer fp32" "$build/metaformer" bench attention --mixer $mixer $size --device cpu --json
  done
}

for ((round = 1; round <= rounds; ++round)); do
  say "round $round of $rounds"
  for shape in $shapes; do
    case $shape in
      reviews) run_round_of_reviews ;;
      mixers) run_round_of_mixers ;;
      *) run_round "$shape" ;;
    esac
  done
done

"$python" - "$results" "$json" <<'PYTHON'
import json
import statistics
import sys

lines = [json.loads(line) for line in open(sys.argv[1])]
for line in lines:
    if "results" in line["result"]:  # of `bench attention`, with one mixer
        line["result"] = {"ms_per_step": line["result"]["results"][0]["ms"]}
table = []
for shape in dict.fromkeys(line["shape"] for line in lines):
    of_shape = [line for line in lines if line["shape"] == shape]
    times, shares = {}, {}
    for line in of_shape:
        times.setdefault(line["name"], []).append(line["result"]["ms_per_step"])
        share = line["result"].get("share_of_peak")
        shares.setdefault(line["name"], []).extend([share] if share else [])
    last = {line["name"]: line["result"] for line in of_shape}
    peer = [min(both) for both in zip(*(values for name, values in times.items() if name.startswith("PyTorch fp32")))]
    for name, values in times.items():
        table.append({"shape": shape, "name": name, "ms_per_step": statistics.median(values),
                      "speedup": statistics.median(theirs / ours for theirs, ours in zip(peer, values)),
                      "share_of_peak": statistics.median(shares[name]) if shares[name] else None,
                      "peak_memory_bytes": last[name].get("peak_memory_bytes")})
print(f"{'shape':15} {'':47} {'ms/step':>8} {'x PyTorch fp32':>15} {'of GEMM peak':>13} {'memory':>9}")
for row in table:
    share = f"{100 * row['share_of_peak']:.0f}%" if row["share_of_peak"] else ""
    memory = f"{row['peak_memory_bytes'] / 2**20:.0f} MiB" if row["peak_memory_bytes"] else ""
    print(f"{row['shape']:15} {row['name']:47} {row['ms_per_step']:8.1f} {row['speedup']:15.2f} {share:>13} {memory:>9}")
if sys.argv[2]:
    json.dump(table, open(sys.argv[2], "w"), indent=1)
PYTHON
