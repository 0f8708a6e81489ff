#pragma once
// Which tensors of a model of the library `transformers` make up a tensor of this program's model. The same list leads
// from theirs to ours and back.

#include <string>
#include <vector>

#include "huggingface/tensor_table.h"

namespace metaformer {

struct TheirTensor {
  std::string name;
  std::int64_t rows = 0;
  // Each of so many heads is there once and is used `copies` times, one after another (grouped-query attention).
  std::int64_t heads = 1, copies = 1;
};

struct TensorLink {
  std::string ours;
  std::vector<std::int64_t> shape;  // of ours
  std::vector<TheirTensor> theirs;  // below each other
  bool transposed = false;          // theirs
  bool zero_if_absent = false;      // ours, a bias that only they have
};

// Errors (exit code 3): as of TensorTable.
NamedTensors to_ours(const std::vector<TensorLink>& links, TensorTable& theirs);
NamedTensors to_theirs(const std::vector<TensorLink>& links, TensorTable& ours);

}  // namespace metaformer
