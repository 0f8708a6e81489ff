#include "distributed/gather_tensors.h"

namespace metaformer {

namespace {

std::string to_bytes(const NamedTensors& named) {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : named) {
    names.push_back(name);
    tensors.push_back(tensor.detach().cpu().clone());  // a view would be written with all that it is a part of
  }
  const auto bytes = torch::pickle_save(c10::ivalue::Tuple::create(names, tensors));
  return {bytes.begin(), bytes.end()};
}

NamedTensors from_bytes(const std::string& bytes) {
  const auto parts = torch::pickle_load({bytes.begin(), bytes.end()}).toTuple()->elements().vec();
  const auto names = parts[0].to<std::vector<std::string>>();
  const auto tensors = parts[1].toTensorVector();
  NamedTensors named;
  for (std::size_t i = 0; i < names.size(); ++i) named.emplace_back(names[i], tensors[i]);
  return named;
}

}  // namespace

std::vector<NamedTensors> gather_tensors(ProcessGroup& group, const NamedTensors& own) {
  if (group.size() == 1) return {own};
  std::vector<NamedTensors> all;
  for (const auto& bytes : group.gather(to_bytes(own))) all.push_back(from_bytes(bytes));
  return all;
}

}  // namespace metaformer
