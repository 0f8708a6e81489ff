#include "huggingface/tensor_links.h"

namespace metaformer {

namespace {

std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows) {
  shape.front() = rows;
  return shape;
}

std::vector<std::int64_t> transposed(std::vector<std::int64_t> shape) { return {shape.rbegin(), shape.rend()}; }

torch::Tensor take_part(const TensorLink& link, const TheirTensor& part, TensorTable& theirs) {
  const auto shape = with_rows(link.shape, part.rows);
  const auto tensor = link.transposed ? theirs.take(part.name, transposed(shape)).t() : theirs.take(part.name, shape);
  if (part.copies == 1) return tensor;
  return tensor.unflatten(0, {part.heads, -1}).repeat_interleave(part.copies, 0).flatten(0, 1);
}

}  // namespace

NamedTensors to_ours(const std::vector<TensorLink>& links, TensorTable& theirs) {
  NamedTensors ours;
  for (const auto& link : links) {
    std::vector<torch::Tensor> parts;
    for (const auto& part : link.theirs) parts.push_back(take_part(link, part, theirs));
    ours.emplace_back(link.ours, parts.size() == 1 ? parts[0].contiguous() : torch::cat(parts, 0));
  }
  theirs.require_empty();
  return ours;
}

NamedTensors to_theirs(const std::vector<TensorLink>& links, TensorTable& ours) {
  NamedTensors theirs;
  for (const auto& link : links) {
    const bool is_absent = link.zero_if_absent && !ours.contains(link.ours);
    const auto tensor = is_absent ? torch::zeros(link.shape) : ours.take(link.ours, link.shape);
    std::int64_t row = 0;
    for (const auto& part : link.theirs) {
      const auto rows = tensor.narrow(0, row, part.rows);
      theirs.emplace_back(part.name, (link.transposed ? rows.t() : rows).contiguous());
      row += part.rows;
    }
  }
  ours.require_empty();
  return theirs;
}

}  // namespace metaformer
