#!/usr/bin/env bash
# Multi-query associative recall: first the learning rates, then five seeds with the best of them.
set -euo pipefail
folder=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
"$folder/recall_draws.sh"
"$folder/recall_tuned.sh"
