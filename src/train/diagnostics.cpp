#include "train/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/parameter_names.h"

namespace metaformer {

namespace {

// "transformer.blocks.3.mixer.output.weight" -> "block_3", "transformer.final_norm.weight" -> "final_norm",
// "encoder.blocks.3.norm.weight" -> "encoder_block_3".
std::string group_of(std::string_view parameter) {
  constexpr std::string_view trunk = "transformer.", encoder = "encoder.";
  if (parameter.starts_with(encoder)) return "encoder_" + group_of(parameter.substr(encoder.size()));
  if (const auto block = block_number(parameter)) return fmt::format("block_{}", *block);
  if (parameter.starts_with(trunk)) parameter.remove_prefix(trunk.size());
  return std::string(parameter.substr(0, parameter.find('.')));
}

struct SquaredNorms {
  double gradient = 0, update = 0, value = 0;
};

// In the order of the model's modules.
std::vector<std::pair<std::string, SquaredNorms>> norms_by_group(const SequenceModel& model,
                                                                 ParameterBuffer& parameters,
                                                                 const torch::Tensor& before) {
  std::vector<std::pair<std::string, SquaredNorms>> groups;
  for (const auto& parameter : model.named_parameters())
    if (const auto name = group_of(parameter.key()); groups.empty() || groups.back().first != name)
      groups.emplace_back(name, SquaredNorms{});
  const auto square = [](const torch::Tensor& tensor) {
    return tensor.to(torch::kDouble).square().sum().item<double>();
  };
  for (const auto& view : parameters.views()) {
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& entry) { return entry.first == group_of(view.name); });
    const auto earlier = ParameterBuffer::part(before, view);
    group->second.gradient += square(ParameterBuffer::part(parameters.gradients(), view));
    group->second.update += square(view.parameter - earlier);
    group->second.value += square(earlier);
  }
  return groups;
}

double ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0; }

}  // namespace

FormDiagnostics diagnose_form(const ScoreForm& form) {
  const auto left = form.left_nrd.to(torch::kCPU, torch::kDouble),
             right = form.right_nrd.to(torch::kCPU, torch::kDouble);
  // |F|^2 = tr(F^T F) and tr(F F), from products of the factors, which are small.
  const auto cross_nrr = torch::matmul(right, left.transpose(1, 2));
  const auto square_n =
      (torch::matmul(left, left.transpose(1, 2)) * torch::matmul(right, right.transpose(1, 2))).sum({1, 2});
  const auto trace_n = (cross_nrr * cross_nrr.transpose(1, 2)).sum({1, 2});
  const auto asymmetry_n = ((square_n - trace_n) / (2 * square_n)).clamp(0, 1).sqrt();
  // Singular values of left^T right = Q (R_left R_right^T) Q'^T.
  const auto triangle = [](const torch::Tensor& factor) {
    return std::get<1>(torch::linalg_qr(factor.transpose(1, 2), "r"));
  };
  const auto values_nr = torch::linalg_svdvals(torch::matmul(triangle(left), triangle(right).transpose(1, 2)));
  const auto share_nr = values_nr / values_nr.sum(1, true);
  const auto rank_n = (-torch::xlogy(share_nr, share_nr).sum(1)).exp();
  const auto spectrum_r = values_nr.mean(0).contiguous();
  const auto* first = spectrum_r.data_ptr<double>();
  return {.asymmetry = asymmetry_n.mean().item<double>(),
          .effective_rank = rank_n.mean().item<double>(),
          .spectrum = {first, first + spectrum_r.numel()}};
}

nlohmann::ordered_json diagnose_step(const SequenceModel& model, ParameterBuffer& parameters,
                                     const torch::Tensor& before, double gradient_norm) {
  const torch::NoGradGuard no_grad;
  const auto groups = norms_by_group(model, parameters, before);
  double clipped = 0;
  for (const auto& [name, norms] : groups) clipped += norms.gradient;
  const double unclip = ratio(gradient_norm, std::sqrt(clipped));
  nlohmann::ordered_json result;
  for (const auto& [name, norms] : groups)
    result[name] = {{"gradient_norm", unclip * std::sqrt(norms.gradient)},
                    {"update_ratio", std::sqrt(ratio(norms.update, norms.value))}};
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    const auto* mixer = dynamic_cast<const Mixer*>(module.value().get());
    const auto form = mixer == nullptr ? std::nullopt : mixer->score_form();
    if (!form) continue;
    const auto diagnosed = diagnose_form(*form);
    auto& block = result[group_of(module.key() + ".")];
    const std::string prefix = module.key().ends_with(".cross_mixer") ? "cross_" : "";
    block[prefix + "score_asymmetry"] = diagnosed.asymmetry;
    block[prefix + "score_effective_rank"] = diagnosed.effective_rank;
    block[prefix + "score_spectrum"] = diagnosed.spectrum;
  }
  return result;
}

}  // namespace metaformer
