#include "report/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "data/list_dataset.h"
#include "model/classifier.h"
#include "model/token_model.h"
#include "tasks/batches.h"

namespace metaformer {

namespace {

torch::Tensor wide(const torch::Tensor& tensor) { return tensor.detach().to(torch::kCPU, torch::kDouble); }

double asymmetry_of(const torch::Tensor& form_ij) {
  const double norm = form_ij.norm().item<double>();
  return norm > 0 ? (form_ij - form_ij.t()).norm().item<double>() / (2 * norm) : 0;
}

torch::Tensor eigenvalues(const torch::Tensor& form_nij) {
  return torch::linalg_eigvalsh((form_nij + form_nij.mT()) / 2);
}

// Of the symmetric part of left^T right. With C = [left; right] it is C^T J C / 2, where J exchanges both halves, and
// with C^T = Q T it has the eigenvalues of T J T^T / 2, and zeros.
torch::Tensor eigenvalues(const torch::Tensor& left_nrd, const torch::Tensor& right_nrd) {
  const auto both_ndr = torch::cat({left_nrd, right_nrd}, 1).mT();
  const auto exchanged_ndr = torch::cat({right_nrd, left_nrd}, 1).mT();
  if (both_ndr.size(2) >= both_ndr.size(1)) return eigenvalues(torch::matmul(left_nrd.mT(), right_nrd));
  const auto [basis_ndr, triangle_nrr] = torch::linalg_qr(both_ndr, "reduced");
  const auto image_nrr = torch::matmul(basis_ndr.mT(), exchanged_ndr);  // T J
  return eigenvalues(torch::matmul(image_nrr, triangle_nrr.mT()) / 2);
}

}  // namespace

HeadForms forms_of(const Mixer& mixer, const torch::Tensor& form_nij, std::int64_t k) {
  const torch::NoGradGuard no_grad;
  HeadForms forms;
  if (form_nij.defined()) {
    forms.form_nij = wide(form_nij);
    forms.eigenvalue_nr = eigenvalues(forms.form_nij);
    for (const auto& form_ij : forms.form_nij.unbind()) forms.asymmetry.push_back(asymmetry_of(form_ij));
  }
  const auto factors = mixer.score_form();
  if (!factors) return forms;
  const auto left_nrd = wide(factors->left_nrd) / std::sqrt(static_cast<double>(k)),
             right_nrd = wide(factors->right_nrd);
  const bool has_form = forms.form_nij.defined();
  if (!has_form) {
    forms.eigenvalue_nr = eigenvalues(left_nrd, right_nrd);
    for (std::int64_t n = 0; n < left_nrd.size(0); ++n)
      forms.asymmetry.push_back(asymmetry_of(torch::matmul(left_nrd[n].t(), right_nrd[n])));
  }
  if (left_nrd.size(0) * left_nrd.size(2) * left_nrd.size(2) <= most_input_form_numbers)
    forms.input_form_ndd = torch::matmul(left_nrd.mT(), right_nrd);
  return forms;
}

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

// The mask of a masked language model is no token of the tokenizer: its id follows theirs.
std::vector<std::string> names_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::vector<std::string> names;
  for (const auto id : ids)
    names.push_back(id < tokenizer.vocabulary_size() ? escaped(tokenizer.decode({&id, 1})) : "[mask]");
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
ScoredVectors scored_vectors(Block block, const torch::Tensor& x_1vd) {
  auto norm = block->mixer_norms().norm;
  const auto y_1vd = block->norm_position() == NormPosition::post ? x_1vd : norm(x_1vd);
  StreamProbe probe;
  Pass pass{.probe = &probe};
  block->mixer().forward(y_1vd, y_1vd, Visibility{}, nullptr, pass);
  return probe.latest().vectors;
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

void count_negative(LayerInspection& layer, bool causal) {
  auto visible_ce = torch::ones_like(layer.score_nce[0], torch::kBool);
  if (causal) visible_ce = visible_ce.tril();
  const auto cells = visible_ce.sum().item<double>();
  layer.negative_scores =
      to_vector((layer.score_nce < 0).logical_and(visible_ce).sum({1, 2}).to(torch::kDouble) / cells);
}

void measure_distance(LayerInspection& layer) {
  const auto c = layer.attention_nce.size(1);
  const auto apart_ce = offset_ce(c, c, torch::kCPU).abs();
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

// Of a batch of one.
torch::Tensor only_sequence(const torch::Tensor& values) {
  return values[0].to(torch::kCPU, torch::kDouble).contiguous();
}

// Of a mixer that scores tokens of one sequence, or of two.
LayerInspection inspect_layer(const StreamProbe::Scores& seen, const Mixer& mixer, const TransformerConfig& config,
                              bool causal) {
  LayerInspection layer{.score_nce = only_sequence(seen.score_bnce), .attention_nce = only_sequence(seen.weight_bnce)};
  layer.forms = forms_of(mixer, seen.vectors.form_nij, config.width / config.heads);
  count_negative(layer, causal);
  return layer;
}

// The layers of a transformer by what its mixers have shown of a text.
void add_layers(TextInspection& inspection, TransformerImpl& trunk, const std::vector<StreamProbe::Scores>& seen,
                const std::vector<std::int32_t>& compared, const LoadedRun& run) {
  const auto has_scores = [](const StreamProbe::Scores& layer) { return layer.has_scores(); };
  if (std::none_of(seen.begin(), seen.end(), has_scores)) {
    inspection.layers.resize(seen.size());
    return;
  }
  inspection.vocabulary = names_of(*run.codec.tokenizer, compared);
  const auto x_1vd = embeddings_of(trunk, to_row(compared, run.device));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i].has_scores()) {
      inspection.layers.emplace_back();
      continue;
    }
    auto layer = inspect_layer(seen[i], trunk.blocks()[i]->mixer(), trunk.config(), inspection.causal);
    layer.axioms = test_axioms(seen[i].vectors, layer.forms.eigenvalue_nr);
    measure_distance(layer);
    layer.distance_nvv = signed_distances(squared_distances(scored_vectors(trunk.blocks()[i], x_1vd)));
    if (is<SortConfig>(run.experiment.config.task))
      layer.distance_rank_correlation = correlations(layer.distance_nvv, compared);
    inspection.layers.push_back(std::move(layer));
  }
}

void add_cross_layers(TextInspection& inspection, const TransformerImpl& trunk,
                      const std::vector<StreamProbe::Scores>& seen) {
  for (std::size_t i = 0; i < seen.size(); ++i) {
    auto block = trunk.blocks()[i];
    inspection.layers.push_back(inspect_layer(seen[i], *block->cross_mixer(), trunk.config(), false));
  }
}

// With the mark at one end.
template <class T>
std::vector<T> with_mark(std::vector<T> tokens, T mark, bool first) {
  tokens.insert(first ? tokens.begin() : tokens.end(), std::move(mark));
  return tokens;
}

std::vector<std::int32_t> cut(std::vector<std::int32_t> ids, std::int64_t most) {
  if (std::ssize(ids) > most) ids.resize(static_cast<std::size_t>(most));
  return ids;
}

}  // namespace

void require_transformer(const LoadedRun& run) {
  const auto& model = run.experiment.config.model;
  if (blocks_of(model) == nullptr)
    throw Error(ExitCode::usage, fmt::format("--run {}: its model is {}, and only transformers have layers to inspect",
                                             run.directory.path().string(), kind_of(model)));
}

std::vector<std::int32_t> ids_of_text(const LoadedRun& run, const std::string& text, std::int64_t tokens) {
  const auto& config = run.experiment.config;
  const bool refuses_nul = is<SequenceToSequenceConfig>(config.task) || is<ClassificationConfig>(config.task);
  if (refuses_nul && text.find('\0') != std::string::npos)
    throw Error(ExitCode::data, "the text has NUL bytes; a text is UTF-8");
  auto ids = run.codec.tokenizer->encode(text);
  if (const auto lists = list_task(config.task)) return ids_of_list(*lists, ids);
  if (ids.empty()) throw Error(ExitCode::data, "the text to inspect is empty");
  const auto marks = is<SequenceToSequenceConfig>(config.task) ? 1 : 0;
  const auto most =
      static_cast<std::size_t>(std::max<std::int64_t>(1, std::min(tokens, context_of(config.model)) - marks));
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
  StreamProbe probe;
  Pass pass{.probe = &probe};
  run.model->forward({.ids_bc = to_row(ids, run.device)}, nullptr, pass);
  const auto& seen = probe.stacks().front();

  TextInspection inspection{.mixer = std::string(kind_of(config.mixer)),
                            .causal = is_causal(run.experiment.config.task),
                            .tokens = names_of(*run.codec.tokenizer, ids),
                            .norms = token_norms(seen)};
  if (is_classifier && is<FirstTokenHeadConfig>(classification(run.experiment.config).head))
    inspection.tokens.insert(inspection.tokens.begin(), "[class]");
  add_layers(inspection, transformer_of(*run.model), seen.own,
             vocabulary_to_compare(*run.codec.tokenizer, ids, limits.vocabulary), run);
  return inspection;
}

std::vector<TextInspection> inspect_pair(const LoadedRun& run, const EncodedPair& pair,
                                         const InspectionLimits& limits) {
  const torch::NoGradGuard no_grad;
  const WideModel wide(*run.model);
  auto& model = dynamic_cast<EncoderDecoder&>(*run.model);
  const auto& config = std::get<EncoderDecoderConfig>(run.experiment.config.model);
  const auto& tokenizer = *run.codec.tokenizer;
  const auto mark = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  const auto most = std::min({limits.tokens, most_inspected_tokens, config.context}) - 1;  // a mark comes to them
  const std::string shown_mark = "[mark]";
  const std::string after_target = std::ssize(pair.target) > most ? "…" : shown_mark;
  const EncodedPair shown{.source = cut(pair.source, most), .target = cut(pair.target, most)};
  StreamProbe probe;
  Pass pass{.probe = &probe};
  Batch batch;
  batch.ids_bc = to_row(with_mark(shown.target, mark, /*first=*/true), run.device);
  batch.source_ids_bs = to_row(with_mark(shown.source, mark, /*first=*/false), run.device);
  run.model->forward(batch, nullptr, pass);
  const auto &encoder = probe.stacks().at(0), &decoder = probe.stacks().at(1);

  TextInspection source{.part = InspectedPart::encoder,
                        .mixer = std::string(kind_of(config.encoder.mixer)),
                        .tokens = with_mark(names_of(tokenizer, shown.source), shown_mark, /*first=*/false),
                        .norms = token_norms(encoder)};
  TextInspection target{.part = InspectedPart::decoder,
                        .mixer = std::string(kind_of(config.mixer)),
                        .causal = true,
                        .tokens = with_mark(names_of(tokenizer, shown.target), shown_mark, /*first=*/true),
                        .norms = token_norms(decoder)};
  TextInspection cross{.part = InspectedPart::cross,
                       .mixer = std::string(kind_of(config.cross_mixer)),
                       .tokens = with_mark(names_of(tokenizer, shown.target), after_target, /*first=*/false),
                       .keys = source.tokens,
                       .norms = token_norms(decoder)};
  add_layers(source, model.encoder(), encoder.own, vocabulary_to_compare(tokenizer, shown.source, limits.vocabulary),
             run);
  add_layers(target, transformer_of(model), decoder.own,
             vocabulary_to_compare(tokenizer, shown.target, limits.vocabulary), run);
  add_cross_layers(cross, transformer_of(model), decoder.cross);
  return {std::move(source), std::move(target), std::move(cross)};
}

// The arrays and numbers of an inspection by name.

namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

void add_axioms(Json& head, const MetricAxioms& axioms) {
  head["verdict"] = to_string(axioms.verdict);
  if (axioms.verdict != FormVerdict::unknown) head["negative_eigenvalues"] = axioms.negative_eigenvalues;
  head["vectors"] = axioms.vectors;
  head["asymmetric_pairs"] = axioms.asymmetric_pairs;
  head["negative_pairs"] = axioms.negative_pairs;
  head["incomplete_triples"] = axioms.incomplete_triples;
  head["violated_triples"] = axioms.violated_triples;
}

Json head_json(const LayerInspection& layer, std::size_t n) {
  Json head = Json::object();
  const auto& forms = layer.forms;
  if (forms.eigenvalue_nr.defined()) {
    const auto values = forms.eigenvalue_nr[static_cast<std::int64_t>(n)].contiguous();
    head["eigenvalues"] =
        std::vector<double>(values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
    head["asymmetry"] = forms.asymmetry[n];
  }
  if (!layer.axioms.empty()) add_axioms(head, layer.axioms[n]);
  head["negative_scores"] = layer.negative_scores[n];
  if (!layer.mean_attention_distance.empty()) head["mean_attention_distance"] = layer.mean_attention_distance[n];
  if (!layer.distance_rank_correlation.empty())
    head["distance_rank_correlation"] = number_or_null(layer.distance_rank_correlation[n]);
  return head;
}

double rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  return std::round(value * unit) / unit;
}

// Rows of one head; cells behind the diagonal are null if `causal`.
Json rows_of(const torch::Tensor& matrix_ij, int digits, bool causal = false) {
  const auto values = matrix_ij.to(torch::kCPU, torch::kDouble).contiguous();
  const auto* value = values.const_data_ptr<double>();
  auto rows = Json::array();
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    auto row = Json::array();
    for (std::int64_t j = 0; j < values.size(1); ++j, ++value)
      row.push_back(causal && j > i ? Json() : number_or_null(rounded(*value, digits)));
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_arrays(Json& head, const LayerInspection& layer, std::int64_t n, bool causal, int digits,
                std::int64_t widest_form) {
  head["attention"] = rows_of(layer.attention_nce[n], digits, causal);
  head["scores"] = rows_of(layer.score_nce[n], digits, causal);
  if (layer.distance_nvv.defined()) head["distances"] = rows_of(layer.distance_nvv[n], digits);
  const auto add_form = [&](const char* name, const torch::Tensor& form) {
    if (form.defined() && form.size(1) <= widest_form) head[name] = rows_of(form[n], digits);
  };
  add_form("form", layer.forms.form_nij);
  add_form("input_form", layer.forms.input_form_ndd);
}

template <class AddArrays>
Json describe(const TextInspection& inspection, AddArrays add) {
  Json json = {{"mixer", inspection.mixer}, {"causal", inspection.causal}, {"tokens", inspection.tokens}};
  if (!inspection.keys.empty()) json["keys"] = inspection.keys;
  json["vocabulary"] = inspection.vocabulary;
  if (inspection.part != InspectedPart::cross) json["norms"] = to_json(inspection.norms);
  json["layers"] = Json::array();
  for (const auto& layer : inspection.layers) {
    auto heads = Json::array();
    for (std::size_t n = 0; n < layer.heads(); ++n) {
      heads.push_back(head_json(layer, n));
      add(heads.back(), layer, static_cast<std::int64_t>(n));
    }
    json["layers"].push_back({{"heads", std::move(heads)}});
  }
  return json;
}

}  // namespace

NamedTensors to_tensors(const TextInspection& inspection) {
  NamedTensors tensors;
  const auto part = inspection.part == InspectedPart::whole ? "" : std::string(to_string(inspection.part)) + ".";
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& layer = inspection.layers[i];
    const auto add = [&](const char* name, const torch::Tensor& values) {
      if (values.defined())
        tensors.emplace_back(part + "layer." + std::to_string(i) + "." + name, values.to(torch::kFloat).contiguous());
    };
    add("attention", layer.attention_nce);
    add("scores", layer.score_nce);
    add("form", layer.forms.form_nij);
    add("input_form", layer.forms.input_form_ndd);
    add("eigenvalues", layer.forms.eigenvalue_nr);
    add("distances", layer.distance_nvv);
  }
  return tensors;
}

Json to_json(const TextInspection& inspection) {
  return describe(inspection, [](Json&, const LayerInspection&, std::int64_t) {});
}

Json to_json_with_arrays(const TextInspection& inspection, int digits, std::int64_t widest_form) {
  return describe(inspection, [&](Json& head, const LayerInspection& layer, std::int64_t n) {
    add_arrays(head, layer, n, inspection.causal, digits, widest_form);
  });
}

}  // namespace metaformer
