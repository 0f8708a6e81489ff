#include "inspect/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "data/datasets/list_dataset.h"
#include "inspect/recorder.h"
#include "model/classifier.h"
#include "tasks/batches.h"

namespace metaformer {

namespace {

// In float64 for as long as it lives.
class WideModel {
 public:
  explicit WideModel(SequenceModel& model) : model_(model) { model_.to(torch::kDouble); }
  WideModel(const WideModel&) = delete;
  WideModel& operator=(const WideModel&) = delete;
  ~WideModel() { model_.to(torch::kFloat); }

 private:
  SequenceModel& model_;
};

TransformerImpl& transformer_of(SequenceModel& model) {
  for (const auto& module : model.modules(/*include_self=*/false))
    if (auto* found = dynamic_cast<TransformerImpl*>(module.get())) return *found;
  throw Error(ExitCode::failure, "this model has no transformer to inspect");
}

std::vector<std::shared_ptr<Mixer>> mixers_of(const TransformerImpl& transformer) {
  std::vector<std::shared_ptr<Mixer>> mixers;
  for (const auto& module : transformer.modules(/*include_self=*/false))
    if (auto mixer = std::dynamic_pointer_cast<Mixer>(module)) mixers.push_back(mixer);
  return mixers;
}

std::vector<std::string> names_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::vector<std::string> names;
  for (const auto id : ids) names.push_back(escaped(tokenizer.decode({&id, 1})));
  return names;
}

std::vector<std::int32_t> vocabulary_to_compare(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                                                std::int64_t most) {
  std::vector<std::int32_t> chosen;
  if (tokenizer.vocabulary_size() <= most) {
    for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) chosen.push_back(id);
    return chosen;
  }
  std::set<std::int32_t> seen;
  for (const auto id : ids)
    if (seen.insert(id).second && static_cast<std::int64_t>(chosen.size()) < most) chosen.push_back(id);
  return chosen;
}

torch::Tensor to_row(const std::vector<std::int32_t>& ids, torch::Device device) {
  return to_tensor({ids.begin(), ids.end()}, 1, device);
}

// Tokens as the first block gets them, but without positions and n-grams: [1, v, d]. Of regions, those of a text of one
// token.
torch::Tensor embeddings_of(TransformerImpl& transformer, const torch::Tensor& ids_1v) {
  if (const auto& regions = transformer.region_embedding(); !regions.is_empty())
    return regions->forward({.ids_bc = ids_1v.t()}).transpose(0, 1);
  auto x_1vd = torch::embedding(transformer.token_table_vd(), ids_1v) * transformer.embedding_factor();
  const auto buffers = transformer.named_buffers(/*recurse=*/false);
  if (const auto* scale_v1 = buffers.find("token_scale")) x_1vd = x_1vd * torch::embedding(*scale_v1, ids_1v);
  return x_1vd;
}

// What the scores of a layer compare where its input are these vectors.
ScoredVectors scored_vectors(const Block& block, Mixer& mixer, const torch::Tensor& x_1vd) {
  auto norm = block->mixer_norms().norm;
  const auto y_1vd = block->norm_position() == NormPosition::post ? x_1vd : norm(x_1vd);
  Recorder recorder;
  Pass pass{.probe = &recorder};
  mixer.forward(y_1vd, y_1vd, Visibility{}, nullptr, pass);
  return recorder.layers().front().vectors;
}

std::vector<double> to_vector(const torch::Tensor& values) {
  const auto flat = values.to(torch::kDouble).flatten().contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

std::vector<double> correlations(const torch::Tensor& distance_nvv, const std::vector<std::int32_t>& numbers) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    for (std::size_t j = i + 1; j < numbers.size(); ++j) differences.push_back(std::abs(numbers[i] - numbers[j]));
  const auto above_vv = torch::ones_like(distance_nvv[0], torch::kBool).triu(1);
  std::vector<double> found;
  for (const auto& distance_vv : distance_nvv.unbind())
    found.push_back(rank_correlation(to_vector(distance_vv.masked_select(above_vv)), differences));
  return found;
}

void summarise_attention(LayerInspection& layer, bool causal) {
  const auto c = layer.score_nce.size(1), e = layer.score_nce.size(2);
  auto visible_ce = torch::ones({c, e}, torch::kBool);
  if (causal) visible_ce = visible_ce.tril();
  const auto cells = visible_ce.sum().item<double>();
  layer.negative_scores =
      to_vector((layer.score_nce < 0).logical_and(visible_ce).sum({1, 2}).to(torch::kDouble) / cells);
  const auto apart_ce = offset_ce(c, e, torch::kCPU).abs();
  layer.mean_attention_distance = to_vector((layer.attention_nce * apart_ce).sum(2).mean(1));
}

void require_inspectable(const LoadedRun& run, std::size_t tokens) {
  require_transformer(run);
  if (static_cast<std::int64_t>(tokens) > most_inspected_tokens)
    throw Error(ExitCode::usage,
                fmt::format("a text of {} tokens is too long to inspect: at most {}", tokens, most_inspected_tokens));
}

// The prompt and its answer, but for the number that the model never reads.
std::vector<std::int32_t> ids_of_list(const ListTask& task, const std::vector<std::int32_t>& list) {
  auto ids = list_prompt(task, list);
  const auto answer = list_answer(task, list);
  ids.insert(ids.end(), answer.begin(), answer.end() - 1);
  return ids;
}

LayerInspection inspect_layer(const Recorder::Scores& recorded, Mixer& mixer, std::int64_t head_width, bool causal) {
  LayerInspection layer{.score_nce = recorded.score_nce, .attention_nce = recorded.attention_nce};
  layer.forms = forms_of(mixer, recorded.vectors.form_nij, head_width);
  layer.axioms = test_axioms(recorded.vectors, layer.forms.eigenvalue_nr);
  summarise_attention(layer, causal);
  return layer;
}

}  // namespace

void require_transformer(const LoadedRun& run) {
  const auto& model = run.experiment.config.model;
  if (!is<TransformerConfig>(model))
    throw Error(ExitCode::usage, fmt::format("--run {}: its model is {}, and only transformers have layers to inspect",
                                             run.directory.path().string(), kind_of(model)));
}

std::vector<std::int32_t> ids_of_text(const LoadedRun& run, const std::string& text, std::int64_t tokens) {
  const auto& config = run.experiment.config;
  auto ids = run.codec.tokenizer->encode(text);
  if (const auto lists = list_task(config.task)) return ids_of_list(*lists, ids);
  if (ids.empty()) throw Error(ExitCode::data, "the text to inspect is empty");
  const auto most = static_cast<std::size_t>(std::min(tokens, context_of(config.model)));
  if (ids.size() > most) ids.resize(most);
  return ids;
}

TextInspection inspect_text(const LoadedRun& run, const std::vector<std::int32_t>& ids,
                            const InspectionLimits& limits) {
  require_inspectable(run, ids.size());
  const torch::NoGradGuard no_grad;
  const WideModel wide(*run.model);
  const auto& config = transformer(run.experiment.config);
  const bool is_classifier = is<ClassificationConfig>(run.experiment.config.task);
  Recorder recorder;
  Pass pass{.probe = &recorder};
  run.model->forward({.ids_bc = to_row(ids, run.device)}, nullptr, pass);

  TextInspection inspection{.mixer = std::string(kind_of(config.mixer)),
                            .causal = is_causal(run.experiment.config.task),
                            .tokens = names_of(*run.codec.tokenizer, ids),
                            .norms = recorder.norms()};
  if (is_classifier && is<FirstTokenHeadConfig>(classification(run.experiment.config).head))
    inspection.tokens.insert(inspection.tokens.begin(), "[class]");
  if (recorder.layers().empty()) {
    inspection.layers.resize(static_cast<std::size_t>(config.layers));
    return inspection;
  }

  auto& trunk = transformer_of(*run.model);
  const auto mixers = mixers_of(trunk);
  const auto compared = vocabulary_to_compare(*run.codec.tokenizer, ids, limits.vocabulary);
  inspection.vocabulary = names_of(*run.codec.tokenizer, compared);
  const auto x_1vd = embeddings_of(trunk, to_row(compared, run.device));
  for (std::size_t i = 0; i < mixers.size(); ++i) {
    auto layer = inspect_layer(recorder.layers()[i], *mixers[i], config.width / config.heads, inspection.causal);
    const auto vectors = scored_vectors(trunk.blocks()[i], *mixers[i], x_1vd);
    layer.distance_nvv = signed_distances(squared_distances(vectors));
    if (is<SortConfig>(run.experiment.config.task))
      layer.distance_rank_correlation = correlations(layer.distance_nvv, compared);
    inspection.layers.push_back(std::move(layer));
  }
  return inspection;
}

}  // namespace metaformer
