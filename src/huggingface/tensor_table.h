#pragma once
// Named tensors from which others are made: each is taken once, and none may be left over.

#include <map>
#include <string>

#include "ops/named_tensors.h"

namespace metaformer {

class TensorTable {
 public:
  // `source` names the tensors in errors (exit code 3).
  TensorTable(const NamedTensors& tensors, std::string source);

  // The tensor in float32, on the CPU. Errors: it is missing, or has another shape.
  torch::Tensor take(const std::string& name, at::IntArrayRef shape);

  bool contains(const std::string& name) const { return tensors_.contains(name); }

  // Removes what ends with `suffix`.
  void drop(const std::string& suffix);

  void require_empty() const;

 private:
  std::map<std::string, torch::Tensor> tensors_;
  std::string source_;
};

}  // namespace metaformer
