#include "train/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "config/writer.h"
#include "ops/device.h"
#include "ops/recompute.h"
#include "tasks/batches.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

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

double ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0; }

Batch small_part(const Batch& batch, const ModelConfig& model) {
  constexpr std::int64_t most_rows = 8, most_numbers = std::int64_t{1} << 23;
  if (batch.is_packed()) return batch;
  const auto& blocks = *blocks_of(model);
  const auto* both = std::get_if<EncoderDecoderConfig>(&model);
  const auto mixers = both != nullptr ? 2 * blocks.layers + both->encoder_blocks().layers : blocks.layers;
  const auto of_sequence = most_numbers / (blocks.heads * mixers);  // most rows x queries x keys
  const auto most_tokens = std::max<std::int64_t>(2, std::llround(std::floor(std::sqrt(of_sequence))));
  const auto longest =
      std::max(batch.ids_bc.size(1), batch.source_ids_bs.defined() ? batch.source_ids_bs.size(1) : std::int64_t{0});
  const auto tokens = std::min(longest, most_tokens);
  const auto rows = std::clamp<std::int64_t>(of_sequence / (tokens * tokens), 1, most_rows);
  return beginning_of(batch, std::min(rows, batch.ids_bc.size(0)), most_tokens);
}

std::vector<std::optional<AttentionMeasures>> measure_mixers(const std::vector<StreamProbe::Scores>& seen) {
  std::vector<std::optional<AttentionMeasures>> measures;
  for (const auto& mixer : seen)
    measures.push_back(mixer.has_scores() ? std::optional(measure_attention(mixer)) : std::nullopt);
  return measures;
}

void add_block(const StackDiagnostics& stack, std::size_t i, Json& block) {
  const auto add_attention = [&](const std::optional<AttentionMeasures>& measures, const std::string& prefix) {
    if (measures)
      block.update({{prefix + "attention_entropy", measures->entropy},
                    {prefix + "score_std", measures->score_std},
                    {prefix + "score_max", measures->score_max}});
  };
  block["stream_norm"] = stack.norms.after_feed_forward.at(i);
  block["mixer_norm"] = stack.norms.mixer_branch.at(i);
  if (!stack.norms.cross_branch.empty()) block["cross_norm"] = stack.norms.cross_branch.at(i);
  block["feed_forward_norm"] = stack.norms.feed_forward_branch.at(i);
  if (stack.gradients) block["stream_gradient"] = stack.gradients->after_feed_forward.at(i);
  add_attention(stack.own.at(i), "");
  if (!stack.cross.empty()) add_attention(stack.cross.at(i), "cross_");
}

void add_remedies(CollapseKind kind, const Json& section, const std::string& path, std::vector<std::string>& remedies) {
  if (!section.is_structured()) return;
  if (section.is_object() && kind == CollapseKind::uniform) {
    if (section.value("score_std", Json()).is_number())
      remedies.push_back(fmt::format("a larger {}.score_std ({} now)", path, section["score_std"].dump()));
  } else if (section.is_object()) {
    if (section.value("qk_norm", Json()) == false) remedies.push_back(path + ".qk_norm=true");
    if (section.value("values", Json()) == "shared") remedies.push_back(path + ".values=own");
  }
  for (const auto& [name, part] : section.items()) add_remedies(kind, part, fmt::format("{}.{}", path, name), remedies);
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

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

Json diagnose_step(const SequenceModel& model, ParameterBuffer& parameters, const torch::Tensor& before,
                   double gradient_norm) {
  const torch::NoGradGuard no_grad;
  struct SquaredNorms {
    double gradient = 0, update = 0, value = 0;
  };
  std::map<std::string, SquaredNorms> groups;
  double clipped = 0;
  const auto square = [](const torch::Tensor& tensor) {
    return tensor.to(torch::kDouble).square().sum().item<double>();
  };
  for (const auto& view : parameters.views()) {
    auto& norms = groups[group_of(view.name)];
    const auto earlier = ParameterBuffer::part(before, view);
    norms.gradient += square(ParameterBuffer::part(parameters.gradients(), view));
    norms.update += square(view.parameter - earlier);
    norms.value += square(earlier);
  }
  for (const auto& [name, norms] : groups) clipped += norms.gradient;
  const double unclip = ratio(gradient_norm, std::sqrt(clipped));
  Json result;
  for (const auto& parameter : model.named_parameters()) {  // in the order of the model's modules
    const auto name = group_of(parameter.key());
    const auto& norms = groups[name];
    result[name] = {{"gradient_norm", unclip * std::sqrt(norms.gradient)},
                    {"update_ratio", std::sqrt(ratio(norms.update, norms.value))}};
  }
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

std::vector<double> attention_entropies(const std::vector<StackDiagnostics>& stacks) {
  std::vector<double> all;
  for (const auto& stack : stacks)
    for (const auto* mixers : {&stack.own, &stack.cross})
      for (const auto& measures : *mixers)
        if (measures) all.insert(all.end(), measures->entropy.begin(), measures->entropy.end());
  return all;
}

void add_to_json(const std::vector<StackDiagnostics>& stacks, nlohmann::ordered_json& groups) {
  for (const auto& stack : stacks) {
    const auto regions = stack.prefix + "region_embedding";
    auto& embedding = groups[groups.contains(regions) ? regions : stack.prefix + "token_embedding"];
    embedding["stream_norm"] = stack.norms.embedding;
    if (stack.gradients) embedding["stream_gradient"] = stack.gradients->embedding;
    for (std::size_t i = 0; i < stack.own.size(); ++i)
      add_block(stack, i, groups[fmt::format("{}block_{}", stack.prefix, i)]);
  }
}

StreamDiagnostics::StreamDiagnostics(const ExperimentConfig& config, const Task& task, SequenceModel& model,
                                     torch::Device device)
    : config_(config), task_(task), model_(model), device_(device) {}

std::vector<StackDiagnostics> StreamDiagnostics::measure(Gradients gradients) {
  const auto* blocks = blocks_of(config_.model);
  if (blocks == nullptr || blocks->layers == 0) return {};
  if (!batch_) batch_ = small_part(task_.batches->evaluation_batch(Split::validation, 0, device_), config_.model);
  const auto& seen = *batch_;
  const bool has_gradients = gradients == Gradients::of_stream && seen.weight.item<double>() > 0;
  const torch::AutoGradMode grad_mode(has_gradients);
  StreamProbe probe;
  Pass pass{.probe = &probe};
  const auto logits = model_.forward(seen, nullptr, pass);
  std::vector<torch::Tensor> values, of_values;  // streams of all stacks; their gradients, undefined where unused
  for (const auto& stack : probe.stacks())
    for (const auto& value : stack.stream) values.push_back(value.x_bcd);
  if (has_gradients) {
    const auto loss = task_.objective(logits, seen) / seen.weight;
    of_values = gradients_of(loss, values, torch::ones_like(loss));
  }
  auto next = of_values.begin();
  const torch::NoGradGuard no_grad;
  std::vector<StackDiagnostics> found;
  for (std::size_t i = 0; i < probe.stacks().size(); ++i) {
    const auto& stack = probe.stacks()[i];
    const bool encodes = i + 1 < probe.stacks().size();
    auto& diagnostics = found.emplace_back();
    diagnostics.prefix = encodes ? "encoder_" : "";
    diagnostics.norms = token_norms(stack, encodes ? seen.source_segments_bs : seen.segments_bc);
    if (has_gradients) {
      diagnostics.gradients = gradient_norms(stack, {next, next + std::ssize(stack.stream)});
      next += std::ssize(stack.stream);
    }
    diagnostics.own = measure_mixers(stack.own);
    diagnostics.cross = measure_mixers(stack.cross);
  }
  return found;
}

CollapseKind collapsed(const std::vector<double>& entropies) {
  if (entropies.empty()) return CollapseKind::none;
  const auto all = [&](auto holds) { return std::all_of(entropies.begin(), entropies.end(), holds); };
  const bool low = all([](double entropy) { return entropy < least_greatest_entropy; });
  if (low && mean_of(entropies) < least_mean_entropy) return CollapseKind::one_token;
  const bool uniform = all([](double entropy) { return entropy >= least_entropy_of_uniform; });
  return uniform ? CollapseKind::uniform : CollapseKind::none;
}

std::vector<std::string> collapse_remedies(CollapseKind kind, const ExperimentConfig& config) {
  std::vector<std::string> remedies;
  add_remedies(kind, config_to_json(config).at("model"), "model", remedies);
  remedies.emplace_back(kind == CollapseKind::uniform ? "another train.learning_rate" : "a lower train.learning_rate");
  return remedies;
}

bool is_look_due(std::int64_t step, std::int64_t steps) {
  const auto looks_until = [&](std::int64_t done) { return done * looks_in_training / steps; };
  return step > 0 && looks_until(step) > looks_until(step - 1);
}

void AttentionWatch::look(Progress& progress) {
  if (progress.collapse || !has_scores_) return;
  try {
    const auto entropies = attention_entropies(diagnostics_.measure(StreamDiagnostics::Gradients::none));
    has_scores_ = !entropies.empty();
    note(entropies, progress);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    has_scores_ = false;
  }
}

void AttentionWatch::note(const std::vector<double>& entropies, Progress& progress) const {
  if (progress.collapse || entropies.empty()) return;
  const auto kind = collapsed(entropies);
  const double entropy = mean_of(entropies);
  bool stays_uniform = false;
  if (kind != CollapseKind::one_token && is_look_due(progress.step, config_.train.steps)) {
    const bool counts = kind == CollapseKind::uniform && progress.step > warmup_steps(config_.train.schedule);
    const double before = std::exchange(progress.uniform_entropy, counts ? entropy : 0);
    stays_uniform = counts && before > 0 && before - entropy < learned_between_looks;
  }
  if (kind != CollapseKind::one_token && !stays_uniform) return;
  progress.collapse = {.step = progress.step, .kind = kind, .entropy = entropy};
  log::warning("step {}: attention has collapsed to {} (mean entropy of all heads: {:.2f} of its maximum): try {}",
               progress.step, kind == CollapseKind::one_token ? "one token" : "the mean of all visible tokens", entropy,
               join_alternatives(collapse_remedies(kind, config_)));
}

}  // namespace metaformer
