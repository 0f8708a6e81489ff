#pragma once
// A model's input.

#include <torch/types.h>

#include <array>
#include <type_traits>

namespace metaformer {

// Padded and packed batches have this type, too; they differ in their segments.
struct Batch {
  torch::Tensor ids_bc;              // long
  torch::Tensor targets_bc;          // long; -1: no target; undefined for classification
  torch::Tensor segments_bc;         // long; -1: padding; undefined: one segment
  torch::Tensor places_t;            // long, row c + column of each token to predict, -1: none; undefined: all tokens
  torch::Tensor source_ids_bs;       // long, the sequence that an encoder reads; undefined: none
  torch::Tensor source_segments_bs;  // long, 0, or -1: padding; undefined: no padding
  torch::Tensor labels_l;            // long, classification: the class of each labelled text
  torch::Tensor label_rows_l2;       // long, the row and the segment of each label; undefined: label i is that of row i
  torch::Tensor target_weights_bc;   // float, weight of every target in the loss; undefined: 1 each
  torch::Tensor target_bytes_bc;     // long, the bytes of text that a target stands for; undefined: not counted
  bool restarts = false;             // positions and n-grams start again in every segment, as those of packed labels do
  bool begins = false;               // its sequences are new: a state or memory must be reset
  std::int64_t first_row = 0;        // index in the step of the batch's first row
  torch::Tensor weight;              // float64 scalar on the device: number of targets, which losses are divided by

  bool is_packed() const { return label_rows_l2.defined(); }
  bool has_own_positions() const { return restarts || is_packed(); }
};

// Pointers to all tensors, to copy or compare batches.
template <class AnyBatch>
requires std::is_same_v<std::remove_const_t<AnyBatch>, Batch>
auto tensors_of(AnyBatch& batch) {
  return std::array{&batch.ids_bc,          &batch.targets_bc,    &batch.segments_bc,
                    &batch.places_t,        &batch.source_ids_bs, &batch.source_segments_bs,
                    &batch.labels_l,        &batch.label_rows_l2, &batch.target_weights_bc,
                    &batch.target_bytes_bc, &batch.weight};
}

// The targets of the tokens to predict, [t], and their weights in the loss (undefined: 1 each).
torch::Tensor wanted_targets_t(const Batch& batch);
torch::Tensor wanted_weights_t(const Batch& batch);

// The row of the batch that contains each of these tokens; the first row for places without a target.
torch::Tensor rows_of_targets_t(const Batch& batch);

// The vectors of these tokens in x_bcd, [t, d]; x_bcd itself if all tokens are predicted.
torch::Tensor wanted_rows(const torch::Tensor& x_bcd, const Batch& batch);

// The labelled texts of a batch: its rows or, where texts are packed, segments of them.

// For each labelled text the row of x that contains it: [b, ...] to [l, ...].
torch::Tensor rows_of_texts(const torch::Tensor& x, const Batch& batch);

// Whether each token of that row belongs to the text, [l, c] bool. For batches with segments.
torch::Tensor tokens_of_texts_lc(const Batch& batch);

}  // namespace metaformer
