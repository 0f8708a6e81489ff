#pragma once
// Who may see whom, and how much by where they stand, with one meaning for all mixers.

#include <torch/types.h>

namespace metaformer {

// Query c sees key e when both have the same segment, that segment is not -1 (padding), and, if causal, the key does
// not stand after the query, nor `window` or more tokens before it: the keys stand in order and the queries are the
// last of them. Segments are integers on the device of the activations and are never read by the host. Undefined
// segments: all one segment.
struct Visibility {
  bool causal = false;
  std::int64_t window = 0;                         // of causal ones; 0: none
  torch::Tensor query_segment_bc, key_segment_be;  // both or neither
  torch::Tensor score_bias_nce;                    // added to the scaled scores, where a mixer has them; or undefined

  // Of positions transformer_xl: a row for every distance of a query to a key, from the largest (keys - 1) down to 0,
  // or if not causal to 1 - queries; and their two vectors, where all layers have the same
  // (attention/score_positions.h).
  torch::Tensor distance_ld, content_bias_nk, distance_bias_nk;

  // What visible_bce() computed last: the layers of a pass have one visibility, and ask it the same. A visibility is
  // of one thread.
  mutable torch::Tensor last_visible_bce;

  bool has_segments() const { return query_segment_bc.defined(); }
};

// True where query c sees key e: [b, c, e], or [1, c, e] without segments. Undefined when everyone sees everyone. Kept
// in the visibility for the next call.
torch::Tensor visible_bce(const Visibility& visibility, std::int64_t queries, std::int64_t keys, torch::Device device);

// The visibility of tokens that look at themselves, from one segment id per token (undefined: one segment).
Visibility self_visibility(bool causal, const torch::Tensor& segment_bc);

// [c, e]: how far key e stands after query c in row order, the queries being the last of the keys.
torch::Tensor offset_ce(std::int64_t queries, std::int64_t keys, torch::Device device);

}  // namespace metaformer
