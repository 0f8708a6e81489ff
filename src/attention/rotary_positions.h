#pragma once
// Rotary positions of a mixer: its queries and keys, rotated by where their tokens stand.

#include <torch/types.h>

#include <atomic>
#include <memory>

#include "config/positions_config.h"

namespace metaformer {

// Of positions 0, 1, ... and the pairs of features.
struct RotaryTables {
  torch::Tensor cos_cr, sin_cr;
};
RotaryTables make_rotary_tables(const RotaryPositionsConfig& config, std::int64_t key_width, std::int64_t tokens);

class RotaryPositions {
 public:
  RotaryPositions(const RotaryPositionsConfig& config, std::int64_t key_width);

  // x_bnck, the last tokens of `tokens` in order, each rotated by its place. Several threads may call it.
  torch::Tensor rotate(const torch::Tensor& x_bnck, std::int64_t tokens);

 private:
  // For at least that many tokens; made unless they are there.
  std::shared_ptr<const RotaryTables> tables_for(std::int64_t tokens, torch::Device device, torch::ScalarType type);

  RotaryPositionsConfig config_;
  std::int64_t key_width_;
  std::atomic<std::shared_ptr<const RotaryTables>> tables_;
};

}  // namespace metaformer
