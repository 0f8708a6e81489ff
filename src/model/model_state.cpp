#include "model/model_state.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

void fail_to_continue(const std::string& source, const std::string& what) {
  throw Error(ExitCode::usage, fmt::format("{}: cannot go on from it: {}", source, what));
}

void require_shape(const std::string& source, const std::string& name, const torch::Tensor& tensor,
                   at::IntArrayRef expected) {
  bool fits = tensor.dim() == std::ssize(expected);
  for (std::size_t i = 0; fits && i < expected.size(); ++i)
    fits = expected[i] == any_size || tensor.size(static_cast<std::int64_t>(i)) == expected[i];
  if (!fits)
    fail_to_continue(source, fmt::format("{} has shape {}, and this model expects {}", in_quotes(name),
                                         shape_text(tensor.sizes()), shape_text(expected)));
}

std::int64_t saved_length(const std::string& source, const std::string& name, const torch::Tensor& tensor) {
  constexpr std::int64_t most = std::int64_t{1} << 53;
  require_shape(source, name, tensor, {});
  if (!tensor.is_floating_point() && tensor.scalar_type() != torch::kBool)
    if (const auto length = tensor.item<std::int64_t>(); length >= 0 && length <= most) return length;
  fail_to_continue(source, fmt::format("{} is {}, and a number of tokens is a whole number from 0 to {}",
                                       in_quotes(name), tensor.item<double>(), most));
}

}  // namespace metaformer
