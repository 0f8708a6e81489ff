#pragma once
// All parameters of a model in one flat buffer, and all gradients in another: the optimiser, clipping, reductions
// between processes and hand-written steps work on whole buffers; names lead back to the single tensors.

#include <string>
#include <vector>

#include "ops/layer.h"

namespace metaformer {

class ParameterBuffer {
 public:
  struct View {
    std::string name;
    torch::Tensor parameter;  // aliases values(); its grad aliases gradients()
    std::int64_t offset = 0;  // in elements
    std::int64_t count = 0;
    Decay decay = Decay::none;
    std::int64_t hidden_matrices = 0;  // as ParameterSpec
  };

  // Moves the parameters of `model` (all of one type, on one device) into the buffer, in the order of Decay: tables of
  // embeddings come first, then matrices. Afterwards the model must not be moved to another device or type.
  explicit ParameterBuffer(torch::nn::Module& model);

  torch::Tensor& values() { return values_; }
  const torch::Tensor& values() const { return values_; }
  torch::Tensor& gradients() { return gradients_; }
  const std::vector<View>& views() const { return views_; }

  // The first view whose part of a buffer of this layout holds a NaN or an infinity; nullptr when none does.
  const View* first_not_finite(const torch::Tensor& buffer) const;

  // The part of another buffer of the same layout (an optimiser's moment) that belongs to a view, in its shape.
  static torch::Tensor part(const torch::Tensor& buffer, const View& view);

 private:
  torch::Tensor values_, gradients_;
  std::vector<View> views_;
};

}  // namespace metaformer
