#pragma once
// What a model remembers of sequences while they are read or generated.

#include <cstdint>
#include <string>

#include "ops/named_tensors.h"

namespace metaformer {

class ModelState {
 public:
  virtual ~ModelState() = default;

  virtual std::int64_t length() const = 0;  // tokens seen

  // Forgets the sequences; keeps its memory.
  virtual void reset() = 0;

  // All that it remembers, by name; the tensors alias its memory.
  virtual NamedTensors tensors() const = 0;

  // The dimension of the sequences in a tensor of that name; what has no dimensions is the same for all of them.
  virtual std::int64_t sequence_dimension(const std::string&) const { return 0; }

  // Remembers what tensors() gave, of a state of the same model and batch, on any device. Throws Error (exit code 2)
  // when they are of another model or batch, or more tokens than it holds; `source` names where they are from.
  virtual void load(const NamedTensors& saved, const std::string& source) = 0;

  virtual std::int64_t bytes() const = 0;
};

// Of what load() is given. All throw Error (exit code 2) and name `source` and the tensor.
[[noreturn]] void fail_to_continue(const std::string& source, const std::string& what);

// Unless the tensor has this shape; any_size fits every size.
constexpr std::int64_t any_size = -1;
void require_shape(const std::string& source, const std::string& name, const torch::Tensor& tensor,
                   at::IntArrayRef expected);

// A number of tokens, without dimensions. Errors: negative, above 2^53, no whole number.
std::int64_t saved_length(const std::string& source, const std::string& name, const torch::Tensor& tensor);

}  // namespace metaformer
