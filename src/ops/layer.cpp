#include "ops/layer.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace metaformer {

void list_gradient_rows(const torch::Tensor& table, GradientRows& rows) {
  table.register_hook([&rows](const torch::Tensor& gradient) {
    if (!gradient.is_sparse()) {
      rows.add_all();
      return gradient;
    }
    const torch::NoGradGuard no_grad;
    auto coalesced = gradient.coalesce();
    const auto indices_s = coalesced._indices().select(0, 0).contiguous();
    const auto* index = indices_s.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < indices_s.numel(); ++i) rows.add(index[i]);
    return coalesced;
  });
}

static thread_local bool makes_meta_modules = false;

MetaModules::MetaModules() : before_(std::exchange(makes_meta_modules, true)) {}
MetaModules::~MetaModules() { makes_meta_modules = before_; }

torch::Device module_device() { return makes_meta_modules ? torch::kMeta : torch::kCPU; }

torch::Tensor Layer::add_parameter(const std::string& name, at::IntArrayRef sizes, const ParameterSpec& spec) {
  const bool is_one = spec.init.kind == Init::Kind::ones;
  return add_parameter(name, is_one ? torch::ones(sizes, module_device()) : torch::zeros(sizes, module_device()), spec);
}

torch::Tensor Layer::add_parameter(const std::string& name, torch::Tensor value, const ParameterSpec& spec) {
  specs_[name] = spec;
  const auto parameter = register_parameter(name, std::move(value), spec.is_trained);
  if (spec.gradient_rows != nullptr) list_gradient_rows(parameter, *spec.gradient_rows);
  return parameter;
}

std::vector<SpecifiedParameter> specified_parameters(const torch::nn::Module& root) {
  std::vector<SpecifiedParameter> all;
  const auto add = [&](const torch::nn::Module& module, const std::string& prefix) {
    const auto* layer = dynamic_cast<const Layer*>(&module);
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      const auto name = prefix + parameter.key();
      if (layer == nullptr || !layer->specs().contains(parameter.key()))
        throw Error(ExitCode::failure, fmt::format("the parameter {} has no ParameterSpec", name));
      all.push_back({name, parameter.value(), layer->specs().at(parameter.key())});
    }
  };
  add(root, "");
  for (const auto& module : root.named_modules("", /*include_self=*/false)) add(*module.value(), module.key() + ".");
  return all;
}

}  // namespace metaformer
