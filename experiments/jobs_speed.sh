#!/usr/bin/env bash
# Measures how many small trainings a machine finishes in an hour with several of them at once: for each number of jobs in COUNTS
# (default 1 2; on a GPU COUNTS="1 4 8 16") it trains as many runs as the largest number, each of STEPS steps (default 300).
set -euo pipefail
if [[ ${1:-} != one ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  read -ra counts <<<"${COUNTS:-1 2}"
  [[ ${counts[*]} =~ ^[1-9][0-9]*(\ [1-9][0-9]*)*$ ]] || { echo "COUNTS=$COUNTS: expected whole numbers, such as \"1 4 8\"" >&2; exit 2; }
  most=$(printf '%s\n' "${counts[@]}" | sort -n | tail -n 1)
  echo "| jobs | runs | seconds | runs an hour |"
  echo "|---|---|---|---|"
  for jobs in "${counts[@]}"; do
    start=$(date +%s%N)
    JOBS=$jobs SEEDS=$(seq -s ' ' "$most") RESULTS=$folder/$jobs.csv RUNS=$folder/$jobs "$0" one >"$folder/$jobs.log" 2>&1 ||
      { cat "$folder/$jobs.log" >&2; exit 1; }
    awk -v jobs="$jobs" -v runs="$most" -v ns=$(($(date +%s%N) - start)) \
      'BEGIN { printf "| %d | %d | %.0f | %.0f |\n", jobs, runs, ns / 1e9, runs * 3600e9 / ns }'
  done
  exit
fi
# shellcheck source=experiments/lib/sweep.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lib/sweep.sh"
for seed in $SEEDS; do
  run recall_scaled_dot_product.yaml --set "train.steps=${STEPS:-300}" --set train.eval_interval=100000 \
    --set train.evaluation.kind=limited --set train.evaluation.tokens=8192 --set "train.seed=$seed"
done
finish
