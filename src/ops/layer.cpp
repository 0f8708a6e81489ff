#include "ops/layer.h"

#include <fmt/format.h>

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

namespace {

using Specs = std::map<std::string, ParameterSpec>;

void add_specs(const torch::nn::Module& module, const std::string& prefix, Specs& all) {
  const auto* layer = dynamic_cast<const Layer*>(&module);
  if (layer == nullptr) return;
  for (const auto& [name, spec] : layer->specs()) all[prefix + name] = spec;
}

}  // namespace

static thread_local bool makes_meta_modules = false;

MetaModules::MetaModules() { makes_meta_modules = true; }
MetaModules::~MetaModules() { makes_meta_modules = false; }

torch::Device module_device() { return makes_meta_modules ? torch::kMeta : torch::kCPU; }

torch::Tensor Layer::add_parameter(const std::string& name, at::IntArrayRef sizes, const ParameterSpec& spec) {
  specs_[name] = spec;
  const bool is_one = spec.init.kind == Init::Kind::ones;
  const auto parameter =
      register_parameter(name, is_one ? torch::ones(sizes, module_device()) : torch::zeros(sizes, module_device()));
  if (spec.gradient_rows != nullptr) list_gradient_rows(parameter, *spec.gradient_rows);
  return parameter;
}

std::vector<SpecifiedParameter> specified_parameters(const torch::nn::Module& root) {
  Specs specs;
  add_specs(root, "", specs);
  for (const auto& module : root.named_modules("", /*include_self=*/false))
    add_specs(*module.value(), module.key() + ".", specs);
  std::vector<SpecifiedParameter> parameters;
  for (const auto& parameter : root.named_parameters()) {
    const auto found = specs.find(parameter.key());
    if (found == specs.end())
      throw Error(ExitCode::failure, fmt::format("the parameter {} has no ParameterSpec", parameter.key()));
    parameters.push_back({parameter.key(), parameter.value(), found->second});
  }
  return parameters;
}

}  // namespace metaformer
