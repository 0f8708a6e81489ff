#pragma once
// A model's input.

#include <torch/types.h>

#include <array>
#include <type_traits>

namespace metaformer {

// Padding and packing add no type, only segments.
struct Batch {
  torch::Tensor ids_bc;              // long
  torch::Tensor targets_bc;          // long; -1: no target; undefined for classification
  torch::Tensor segments_bc;         // long; -1: padding; undefined: one segment
  torch::Tensor places_t;            // long, row c + column of the tokens to predict, -1: none; undefined: all are
  torch::Tensor source_ids_bs;       // long, the sequence that an encoder reads; undefined: there is none
  torch::Tensor source_segments_bs;  // long, 0, or -1: padding; undefined: none is
  torch::Tensor labels_l;            // long, classification: the class of each labelled text
  torch::Tensor label_rows_l2;       // long, the row and the segment of each label; undefined: label i is that of row i
  torch::Tensor target_weights_bc;   // float, of every target in the loss; undefined: 1 each
  torch::Tensor target_bytes_bc;     // long, the bytes of text that a target stands for; undefined: not counted
  bool restarts = false;             // positions and n-grams start again in every segment, as those of packed labels do
  bool begins = false;               // what a state or memory holds is of other sequences, and is to be forgotten
  std::int64_t first_row = 0;        // in the step that the batch is a part of
  torch::Tensor weight;              // float64 scalar on the device: number of targets, which losses are divided by

  bool is_packed() const { return label_rows_l2.defined(); }
  bool has_own_positions() const { return restarts || is_packed(); }
};

// All of them, for what copies or compares batches.
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

// The row of the batch that each of them is in; of places without a target the first.
torch::Tensor rows_of_targets_t(const Batch& batch);

// The rows of x_bcd that belong to them, [t, d]; x_bcd itself where all tokens are predicted.
torch::Tensor wanted_rows(const torch::Tensor& x_bcd, const Batch& batch);

// The labelled texts of a batch: its rows or, where texts are packed, segments of them.

// The row of the batch that each labelled text is in, of x with the batch's rows in front: [b, ...] to [l, ...].
torch::Tensor rows_of_texts(const torch::Tensor& x, const Batch& batch);

// Which tokens of that row belong to the text, [l, c] bool. For batches with segments.
torch::Tensor tokens_of_texts_lc(const Batch& batch);

}  // namespace metaformer
