#include "report/inspection.h"

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "data/list_dataset.h"
#include "model/classifier.h"
#include "model/make_model.h"
#include "model/parameters.h"
#include "model/token_model.h"
#include "ops/autocast.h"
#include "report/statistics.h"
#include "tasks/batches.h"

namespace metaformer {

namespace {

constexpr double negligible = 1e-9;

torch::Tensor wide(const torch::Tensor& tensor) { return tensor.detach().to(torch::kCPU, torch::kDouble); }

double asymmetry_of(const torch::Tensor& form_ij) {
  const double norm = form_ij.norm().item<double>();
  return norm > 0 ? (form_ij - form_ij.t()).norm().item<double>() / (2 * norm) : 0;
}

torch::Tensor eigenvalues(const torch::Tensor& form_nij) {
  return torch::linalg_eigvalsh((form_nij + form_nij.mT()) / 2);
}

// The eigenvalues of the symmetric part of left^T right. With C = [left; right] it is C^T J C / 2, where J exchanges
// both halves, and with C^T = Q T it has the eigenvalues of T J T^T / 2, and zeros.
torch::Tensor eigenvalues(const torch::Tensor& left_nrd, const torch::Tensor& right_nrd) {
  const auto both_ndr = torch::cat({left_nrd, right_nrd}, 1).mT();
  const auto exchanged_ndr = torch::cat({right_nrd, left_nrd}, 1).mT();
  if (both_ndr.size(2) >= both_ndr.size(1)) return eigenvalues(torch::matmul(left_nrd.mT(), right_nrd));
  const auto [basis_ndr, triangle_nrr] = torch::linalg_qr(both_ndr, "reduced");
  const auto image_nrr = torch::matmul(basis_ndr.mT(), exchanged_ndr);  // T J
  return eigenvalues(torch::matmul(image_nrr, triangle_nrr.mT()) / 2);
}

// r_nce = left_c F right_e, in float64 on the CPU.
torch::Tensor bilinear_scores(const ScoredVectors& vectors) {
  auto left_nci = wide(vectors.left_bnci[0]);
  if (vectors.form_nij.defined()) left_nci = torch::matmul(left_nci, wide(vectors.form_nij));
  return torch::matmul(left_nci, wide(vectors.right_bnej[0]).mT());
}

torch::Tensor squares_of(const torch::Tensor& score_nce) {
  const auto own_nc = score_nce.diagonal(0, 1, 2);
  return own_nc.unsqueeze(2) + own_nc.unsqueeze(1) - score_nce - score_nce.mT();
}

double fraction(std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

double largest(const torch::Tensor& values) { return values.numel() == 0 ? 0 : values.abs().max().item<double>(); }

void judge(MetricAxioms& axioms, const torch::Tensor& eigenvalue_r) {
  const double bound = negligible * largest(eigenvalue_r);
  const auto negative = (eigenvalue_r < -bound).sum().item<std::int64_t>();
  axioms.negative_eigenvalues = fraction(negative, eigenvalue_r.numel());
  const bool positive = (eigenvalue_r > bound).all().item<bool>();
  axioms.verdict = negative > 0 ? FormVerdict::no_metric : positive ? FormVerdict::metric : FormVerdict::pseudometric;
}

// triple_t3: the triples of three different vectors.
void test_triples(MetricAxioms& axioms, const torch::Tensor& square_cc, const torch::Tensor& triple_t3, double bound) {
  const auto sides_of = [&](const torch::Tensor& value_cc) {  // of a, b and c: ab, ac, bc
    return torch::stack({value_cc.index({triple_t3.select(1, 0), triple_t3.select(1, 1)}),
                         value_cc.index({triple_t3.select(1, 0), triple_t3.select(1, 2)}),
                         value_cc.index({triple_t3.select(1, 1), triple_t3.select(1, 2)})});
  };
  const auto distance_cc = square_cc.clamp_min(0).sqrt();
  const auto side_3t = sides_of(distance_cc);
  const auto incomplete_t = (sides_of(square_cc) < -bound).any(0);
  const auto violated_t = 2 * side_3t.amax(0) > side_3t.sum(0) + negligible * largest(distance_cc);
  const auto incomplete = incomplete_t.sum().item<std::int64_t>(), all = triple_t3.size(0);
  axioms.incomplete_triples = fraction(incomplete, all);
  axioms.violated_triples = fraction((violated_t & ~incomplete_t).sum().item<std::int64_t>(), all - incomplete);
}

// The model is float64 until the result is destroyed.
auto as_double(SequenceModel& model) {
  model.to(torch::kDouble);
  return c10::make_scope_exit([&model] { model.to(torch::kFloat); });
}

TransformerImpl& transformer_of(SequenceModel& model) {
  for (const auto& module : model.modules(/*include_self=*/false))
    if (auto* found = dynamic_cast<TransformerImpl*>(module.get())) return *found;
  throw Error(ExitCode::failure, "this model has no transformer to inspect");
}

// The mask of a masked language model is not a token of the tokenizer: its id follows those of the tokenizer.
std::vector<std::string> names_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::vector<std::string> names;
  for (const auto id : ids)
    names.push_back(id < tokenizer.vocabulary_size() ? escaped(tokenizer.decode({&id, 1})) : "[mask]");
  return names;
}

// The whole vocabulary or, if it has more than `most` tokens, the first distinct tokens of the text.
std::vector<std::int32_t> vocabulary_to_compare(const Tokenizer& tokenizer, std::vector<std::int32_t> ids,
                                                std::int64_t most) {
  if (tokenizer.vocabulary_size() <= most) {
    ids.resize(static_cast<std::size_t>(tokenizer.vocabulary_size()));
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
  }
  std::set<std::int32_t> seen;
  std::erase_if(ids, [&](auto id) { return std::ssize(seen) == most || !seen.insert(id).second; });
  return ids;
}

torch::Tensor to_row(const std::vector<std::int32_t>& ids, torch::Device device) {
  return to_tensor({ids.begin(), ids.end()}, 1, device);
}

// Embeddings of tokens as the first block gets them, without positions and n-grams, [1, v, d]. With region embeddings:
// those of texts of one token.
torch::Tensor embeddings_of(TransformerImpl& transformer, const torch::Tensor& ids_1v) {
  if (const auto& regions = transformer.region_embedding(); !regions.is_empty())
    return regions->forward({.ids_bc = ids_1v.t()}).transpose(0, 1);
  auto x_1vd = torch::embedding(transformer.token_table_vd(), ids_1v) * transformer.embedding_factor();
  const auto buffers = transformer.named_buffers(/*recurse=*/false);
  if (const auto* scale_v1 = buffers.find("token_scale")) x_1vd = x_1vd * torch::embedding(*scale_v1, ids_1v);
  return x_1vd;
}

// The vectors that the scores of a layer compare if its input is x_1vd.
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

// Inspects a mixer that scores tokens of one sequence, or of two.
LayerInspection inspect_layer(std::string kind, const StreamProbe::Scores& seen, const Mixer& mixer,
                              const TransformerConfig& config, bool causal) {
  const auto only_sequence = [](const torch::Tensor& values) {
    return values[0].to(torch::kCPU, torch::kDouble).contiguous();
  };
  LayerInspection layer{.mixer = std::move(kind),
                        .score_nce = only_sequence(seen.score_bnce),
                        .attention_nce = only_sequence(seen.weight_bnce),
                        .forms = forms_of(mixer, seen.vectors.form_nij, config.width / config.heads)};
  auto visible_ce = torch::ones_like(layer.score_nce[0], torch::kBool);
  if (causal) visible_ce = visible_ce.tril();
  const auto negative_n = (layer.score_nce < 0).logical_and(visible_ce).sum({1, 2}).to(torch::kDouble);
  layer.negative_scores = to_vector(negative_n / visible_ce.sum().item<double>());
  return layer;
}

// Adds the layers of a transformer, from the scores that its mixers computed for a text.
void add_layers(TextInspection& inspection, TransformerImpl& trunk, const std::vector<StreamProbe::Scores>& seen,
                const std::vector<std::int32_t>& ids, std::int64_t vocabulary, const LoadedRun& run) {
  inspection.layers.resize(seen.size());
  for (std::size_t i = 0; i < seen.size(); ++i)
    inspection.layers[i].mixer = kind_of(trunk.config().mixer_of(static_cast<std::int64_t>(i)));
  if (std::ranges::none_of(seen, &StreamProbe::Scores::has_scores)) return;
  const auto compared = vocabulary_to_compare(*run.codec.tokenizer, ids, vocabulary);
  inspection.vocabulary = names_of(*run.codec.tokenizer, compared);
  const auto x_1vd = embeddings_of(trunk, to_row(compared, run.device));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i].has_scores()) continue;
    auto& layer = inspection.layers[i];
    layer = inspect_layer(layer.mixer, seen[i], trunk.blocks()[i]->mixer(), trunk.config(), inspection.causal);
    layer.axioms = test_axioms(seen[i].vectors, layer.forms.eigenvalue_nr);
    const auto c = layer.attention_nce.size(1);
    layer.mean_attention_distance =
        to_vector((layer.attention_nce * offset_ce(c, c, torch::kCPU).abs()).sum(2).mean(1));
    layer.distance_nvv = signed_distances(scored_vectors(trunk.blocks()[i], x_1vd));
    if (is<SortConfig>(run.experiment.config.task))
      layer.distance_rank_correlation = correlations(layer.distance_nvv, compared);
  }
}

std::vector<std::int32_t> cut(std::vector<std::int32_t> ids, std::int64_t most) {
  if (std::ssize(ids) > most) ids.resize(static_cast<std::size_t>(most));
  return ids;
}

double gradient_norm(const torch::nn::Module& block, const std::string& branch) {
  double squares = 0;
  for (const auto& parameter : block.named_parameters())
    if (parameter.key().starts_with(branch) && parameter.value().grad().defined())
      squares += parameter.value().grad().to(torch::kDouble).square().sum().item<double>();
  return std::sqrt(squares);
}

GradientNorms measure_gradients(const LoadedRun& run, const Task& task) {
  const torch::AutoGradMode with_gradients(true);
  auto& model = *run.model;
  const auto batch = model.remembers() ? task.batches->evaluation_batch(Split::validation, 0, run.device)
                                       : task.batches->random_batch(Split::validation, 0, run.device);
  StreamProbe probe(/*wants_scores=*/false);
  Pass pass{.probe = &probe};
  model.zero_grad();
  const auto loss = task.objective(model.forward(batch, nullptr, pass), batch) / batch.weight;
  const auto& stack = probe.stacks().front();
  for (const auto& value : stack.stream)
    if (value.x_bcd.requires_grad()) value.x_bcd.retain_grad();
  loss.backward();
  std::vector<torch::Tensor> gradients;
  for (const auto& value : stack.stream)
    gradients.push_back(value.x_bcd.requires_grad() ? value.x_bcd.grad() : torch::Tensor());
  GradientNorms norms{.stream = gradient_norms(stack, gradients)};
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* block = dynamic_cast<const BlockImpl*>(module.get());
    if (block == nullptr) continue;
    norms.mixer.push_back(gradient_norm(*block, "mixer"));
    norms.feed_forward.push_back(gradient_norm(*block, "feed_forward"));
  }
  model.zero_grad();
  return norms;
}

// The losses [t] of the tokens to predict; 0 without a target.
torch::Tensor losses_of(const torch::Tensor& logits, const torch::Tensor& targets_t) {
  return at::cross_entropy_loss(widened(logits).flatten(0, -2), targets_t, {}, at::Reduction::None, /*ignore_index=*/-1)
      .to(torch::kDouble);
}

// The column of each token to predict.
torch::Tensor columns_of(const Batch& batch) {
  const auto rows = batch.ids_bc.size(0), length = batch.ids_bc.size(1);
  if (batch.places_t.defined()) return batch.places_t.clamp_min(0).remainder(length);
  return torch::arange(length, batch.ids_bc.options()).repeat(rows);
}

std::vector<PositionLoss> measure_positions(const LoadedRun& run, const Task& task, std::int64_t batches) {
  const auto all = task.batches->evaluation_batches(Split::validation);
  const auto context = context_of(run.experiment.config.model);
  auto loss_c = torch::zeros(context, torch::kDouble).to(run.device), targets_c = torch::zeros_like(loss_c);
  for (std::int64_t i = 0; i < (batches > 0 ? std::min(batches, all) : all); ++i) {
    throw_if_stopped();
    const auto batch = task.batches->evaluation_batch(Split::validation, i, run.device);
    const auto column_t = columns_of(batch), target_t = wanted_targets_t(batch);
    loss_c.index_add_(0, column_t, losses_of(run.predictor->logits(batch), target_t));
    targets_c.index_add_(0, column_t, (target_t >= 0).to(torch::kDouble));
  }
  std::vector<PositionLoss> found;
  for (std::int64_t c = 0; c < context; ++c)
    if (const auto targets = targets_c[c].item<double>(); targets > 0)
      found.push_back(
          {.position = c, .targets = static_cast<std::int64_t>(targets), .loss = loss_c[c].item<double>() / targets});
  return found;
}

// 1, 2, 3, 4, 6, 8, 12, 16, ..., context.
std::vector<std::int64_t> tried_contexts(std::int64_t context) {
  std::vector<std::int64_t> tried;
  for (std::int64_t m = 1; m < context; m *= 2) {
    tried.push_back(m);
    if (m >= 2 && 3 * m / 2 < context) tried.push_back(3 * m / 2);
  }
  tried.push_back(context);
  return tried;
}

// Adds the losses of the last target of each row, for every length of the context.
void add_context_losses(const LoadedRun& run, const Batch& batch, std::vector<ContextLoss>& losses) {
  const auto whole = batch.targets_bc.size(1);
  const auto targets_b = batch.targets_bc.select(1, whole - 1);
  for (auto& [tokens, loss] : losses) {
    throw_if_stopped();
    const auto logits_bcv = run.predictor->logits({.ids_bc = batch.ids_bc.narrow(1, whole - tokens, tokens)});
    loss += losses_of(logits_bcv.select(1, tokens - 1), targets_b).sum().item<double>();
  }
}

void measure_context(const LoadedRun& run, const Task& task, std::int64_t wanted, SplitInspection& inspection) {
  const auto context = context_of(run.experiment.config.model);
  const auto all = task.batches->evaluation_batches(Split::validation);
  const auto rows = evaluation_rows(context);
  const auto batches = std::clamp<std::int64_t>((wanted + rows - 1) / rows, 1, all);
  for (const auto tokens : tried_contexts(context)) inspection.loss_by_context.push_back({.tokens = tokens});
  for (std::int64_t i = 0; i < batches; ++i) {
    const auto batch = task.batches->evaluation_batch(Split::validation, i * all / batches, run.device);
    inspection.context_targets += (batch.targets_bc.select(1, context - 1) >= 0).sum().item<std::int64_t>();
    add_context_losses(run, batch, inspection.loss_by_context);
  }
  if (inspection.context_targets == 0) {  // the split is shorter than the context
    inspection.loss_by_context.clear();
    return;
  }
  for (auto& entry : inspection.loss_by_context) entry.loss /= static_cast<double>(inspection.context_targets);
  inspection.effective_context = effective_context_of(inspection.loss_by_context);
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

torch::Tensor signed_distances(const ScoredVectors& vectors) {
  const auto square_nce = squares_of(bilinear_scores(vectors));
  return square_nce.sign() * square_nce.abs().sqrt();
}

std::vector<MetricAxioms> test_axioms(const ScoredVectors& vectors, const torch::Tensor& eigenvalue_nr) {
  const auto count = std::min(most_vectors, vectors.left_bnci.size(2));
  const auto score_nce = bilinear_scores({.left_bnci = vectors.left_bnci.narrow(2, 0, count),
                                          .right_bnej = vectors.right_bnej.narrow(2, 0, count),
                                          .form_nij = vectors.form_nij});
  const auto square_ncc = squares_of(score_nce).contiguous();
  const auto pairs = count * (count - 1) / 2;
  const auto triple_t3 = torch::combinations(torch::arange(count), 3);
  std::vector<MetricAxioms> heads;
  for (std::int64_t n = 0; n < score_nce.size(0); ++n) {
    MetricAxioms axioms{.vectors = count};
    if (eigenvalue_nr.defined()) judge(axioms, eigenvalue_nr[n]);
    const auto score_ce = score_nce[n], square_cc = square_ncc[n];
    const auto differ = (score_ce - score_ce.mT()).abs() > negligible * largest(score_ce);
    axioms.asymmetric_pairs = fraction(differ.triu(1).sum().item<std::int64_t>(), pairs);
    const double bound = negligible * largest(square_cc);
    axioms.negative_pairs = fraction((square_cc < -bound).triu(1).sum().item<std::int64_t>(), pairs);
    test_triples(axioms, square_cc, triple_t3, bound);
    heads.push_back(axioms);
  }
  return heads;
}

void require_transformer(const LoadedRun& run) {
  const auto& model = run.experiment.config.model;
  if (blocks_of(model) == nullptr)
    fail_usage("--run {}: its model is {}, and only transformers have layers to inspect", run.directory.path().string(),
               kind_of(model));
}

std::vector<std::int32_t> ids_of_text(const LoadedRun& run, const std::string& text, std::int64_t tokens) {
  const auto& config = run.experiment.config;
  const bool refuses_nul = is<SequenceToSequenceConfig>(config.task) || is<ClassificationConfig>(config.task);
  if (refuses_nul && text.find('\0') != std::string::npos) fail_data("the text has NUL bytes; a text is UTF-8");
  auto ids = run.codec.tokenizer->encode(text);
  if (const auto lists = list_task(config.task)) {
    auto prompt = list_prompt(*lists, ids);
    const auto answer = list_answer(*lists, ids);
    prompt.insert(prompt.end(), answer.begin(), answer.end() - 1);  // the model never reads its last number
    return prompt;
  }
  if (ids.empty()) fail_data("the text to inspect is empty");
  const auto marks = is<SequenceToSequenceConfig>(config.task) ? 1 : 0;
  return cut(std::move(ids), std::max<std::int64_t>(1, std::min(tokens, context_of(config.model)) - marks));
}

// Norms with the initial weights, for every transformer of the model. Nothing if training began with the weights of
// another run.
static std::vector<std::optional<DepthNorms>> norms_at_start(const LoadedRun& run, const Batch& batch) {
  const auto& config = run.experiment.config;
  if (config.train.init_from) return {std::nullopt, std::nullopt};
  const auto model = make_model(config, sizes_of(run.codec));
  initialise(*model, static_cast<std::uint64_t>(config.train.seed));
  model->to(run.device, torch::kDouble);
  model->eval();
  StreamProbe probe(/*wants_scores=*/false);
  Pass pass{.probe = &probe};
  model->forward(batch, nullptr, pass);
  std::vector<std::optional<DepthNorms>> norms;
  for (const auto& stack : probe.stacks()) norms.emplace_back(token_norms(stack));
  return norms;
}

TextInspection inspect_text(const LoadedRun& run, const std::vector<std::int32_t>& ids,
                            const InspectionLimits& limits) {
  require_transformer(run);
  if (std::ssize(ids) > most_inspected_tokens)
    fail_usage("a text of {} tokens is too long to inspect: at most {}", ids.size(), most_inspected_tokens);
  const torch::NoGradGuard no_grad;
  const auto wide = as_double(*run.model);
  const auto& config = transformer(run.experiment.config);
  StreamProbe probe;
  Pass pass{.probe = &probe};
  const Batch batch{.ids_bc = to_row(ids, run.device)};
  run.model->forward(batch, nullptr, pass);
  const auto& seen = probe.stacks().front();

  TextInspection inspection{.mixer = config.mixer_names(),
                            .causal = is_causal(run.experiment.config.task),
                            .tokens = names_of(*run.codec.tokenizer, ids),
                            .norms = token_norms(seen)};
  if (is<ClassificationConfig>(run.experiment.config.task) &&
      is<FirstTokenHeadConfig>(classification(run.experiment.config).head))
    inspection.tokens.insert(inspection.tokens.begin(), "[class]");
  add_layers(inspection, transformer_of(*run.model), seen.own, ids, limits.vocabulary, run);
  inspection.norms_at_start = norms_at_start(run, batch).front();
  return inspection;
}

std::vector<TextInspection> inspect_pair(const LoadedRun& run, const EncodedPair& pair,
                                         const InspectionLimits& limits) {
  const torch::NoGradGuard no_grad;
  const auto wide = as_double(*run.model);
  auto& model = dynamic_cast<EncoderDecoder&>(*run.model);
  const auto& config = std::get<EncoderDecoderConfig>(run.experiment.config.model);
  const auto& tokenizer = *run.codec.tokenizer;
  const auto mark = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  const auto most = std::min({limits.tokens, most_inspected_tokens, config.context}) - 1;  // a mark is added
  const auto source_text = cut(pair.source, most), target_text = cut(pair.target, most);
  auto source_ids = source_text, target_ids = target_text;
  source_ids.push_back(mark);
  target_ids.insert(target_ids.begin(), mark);
  auto source_names = names_of(tokenizer, source_text), written_names = names_of(tokenizer, target_text);
  auto target_names = written_names;
  source_names.emplace_back("[mark]");
  target_names.insert(target_names.begin(), "[mark]");
  written_names.emplace_back(std::ssize(pair.target) > most ? "…" : "[mark]");
  StreamProbe probe;
  Pass pass{.probe = &probe};
  const Batch batch{.ids_bc = to_row(target_ids, run.device), .source_ids_bs = to_row(source_ids, run.device)};
  run.model->forward(batch, nullptr, pass);
  const auto &encoder = probe.stacks().at(0), &decoder = probe.stacks().at(1);

  TextInspection source{.part = InspectedPart::encoder,
                        .mixer = config.encoder_blocks().mixer_names(),
                        .tokens = source_names,
                        .norms = token_norms(encoder)};
  TextInspection target{.part = InspectedPart::decoder,
                        .mixer = config.mixer_names(),
                        .causal = true,
                        .tokens = target_names,
                        .norms = token_norms(decoder)};
  TextInspection cross{.part = InspectedPart::cross,
                       .mixer = std::string(kind_of(config.cross_mixer)),
                       .tokens = written_names,
                       .keys = source_names,
                       .norms = token_norms(decoder)};
  const auto at_start = norms_at_start(run, batch);
  source.norms_at_start = at_start[0];
  target.norms_at_start = at_start[1];
  auto& trunk = transformer_of(model);
  add_layers(source, model.encoder(), encoder.own, source_text, limits.vocabulary, run);
  add_layers(target, trunk, decoder.own, target_text, limits.vocabulary, run);
  for (std::size_t i = 0; i < decoder.cross.size(); ++i) {
    auto block = trunk.blocks()[i];
    cross.layers.push_back(
        inspect_layer(cross.mixer, decoder.cross[i], *block->cross_mixer(), trunk.config(), /*causal=*/false));
  }
  return {std::move(source), std::move(target), std::move(cross)};
}

NamedTensors LayerInspection::arrays() const {
  return {{"attention", attention_nce},
          {"scores", score_nce},
          {"form", forms.form_nij},
          {"input_form", forms.input_form_ndd},
          {"eigenvalues", forms.eigenvalue_nr},
          {"distances", distance_nvv}};
}

NamedTensors to_tensors(const TextInspection& inspection) {
  NamedTensors tensors;
  const auto part = inspection.part == InspectedPart::whole ? "" : std::string(to_string(inspection.part)) + ".";
  for (std::size_t i = 0; i < inspection.layers.size(); ++i)
    for (const auto& [name, values] : inspection.layers[i].arrays())
      if (values.defined())
        tensors.emplace_back(fmt::format("{}layer.{}.{}", part, i, name), values.to(torch::kFloat).contiguous());
  return tensors;
}

std::int64_t effective_context_of(const std::vector<ContextLoss>& losses) {
  constexpr double tolerance = 1.01;
  auto found = losses.back().tokens;
  for (auto entry = losses.rbegin(); entry != losses.rend() && entry->loss <= tolerance * losses.back().loss; ++entry)
    found = entry->tokens;
  return found;
}

SplitInspection inspect_split(const LoadedRun& run, const Task& task, const SplitLimits& limits) {
  require_transformer(run);
  const auto& config = run.experiment.config;
  SplitInspection inspection{.gradients = measure_gradients(run, task)};
  if (is<ClassificationConfig>(config.task)) return inspection;
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(config.train.precision, run.device);
  inspection.loss_by_position = measure_positions(run, task, limits.batches);
  const auto* task_config = std::get_if<LanguageModelConfig>(&config.task);
  if (task_config != nullptr && packing_options(task_config->data.packing) == nullptr && !run.model->remembers())
    measure_context(run, task, limits.context_targets, inspection);
  return inspection;
}

}  // namespace metaformer
