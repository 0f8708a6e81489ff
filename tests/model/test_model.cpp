#include <cmath>
#include <map>

#include "base/error.h"
#include "model/parameters.h"
#include "model/token_model.h"
#include "support/any_block.h"
#include "support/any_mixer.h"
#include "support/mixer_options.h"

namespace metaformer {

namespace {

TransformerConfig small_config(const MixerConfig& mixer = MetricOptions{}) {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = 12;
  config.mixer = mixer;
  return config;
}

constexpr std::int64_t vocabulary = 11;

Batch random_batch(std::int64_t rows, std::int64_t length) {
  return {.ids_bc = torch::randint(vocabulary, {rows, length}, torch::kLong)};
}

double relative_error(const torch::Tensor& value, const torch::Tensor& expected) {
  return ((value - expected).norm() / expected.norm()).item<double>();
}

}  // namespace

TEST_CASE("cached generation gives the logits of the whole sequence", "[model]") {
  auto config = small_config(any_mixer());
  config.norm = any_norm();
  torch::manual_seed(1);
  Gpt model(config, vocabulary);
  model.to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.normal_(0, 0.3);
  const auto batch = random_batch(3, 12);
  const auto whole = model.evaluate(batch);
  const auto state = model.new_state(3, config.context);
  std::vector<torch::Tensor> parts;
  for (const auto& [first, count] : std::vector<std::pair<int, int>>{{0, 5}, {5, 1}, {6, 4}, {10, 2}})
    parts.push_back(model.evaluate(Batch{.ids_bc = batch.ids_bc.narrow(1, first, count)}, state.get()));
  CHECK(relative_error(torch::cat(parts, 1), whole) < 1e-12);
  CHECK(state->length() == 12);
  CHECK_THROWS_AS(model.evaluate(random_batch(3, 1), state.get()), Error);
}

TEST_CASE("a sequence longer than the context is refused", "[model]") {
  Gpt model(small_config(), vocabulary);
  CHECK_THROWS_WITH(model.evaluate(random_batch(1, 13)), ContainsSubstring("13 tokens does not fit model.context 12"));
}

TEST_CASE("without positions, packed documents equal separate documents", "[model]") {
  auto config = small_config(any_mixer());
  config.positions = NoPositionsConfig{};
  torch::manual_seed(2);
  Gpt model(config, vocabulary);
  model.to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.normal_(0, 0.3);
  const auto long_tensor = [](std::vector<std::int64_t> values) { return torch::tensor(values).unsqueeze(0); };
  auto batch = random_batch(1, 9);
  const auto apart_one = model.evaluate(Batch{.ids_bc = batch.ids_bc.narrow(1, 0, 4)});
  const auto apart_two = model.evaluate(Batch{.ids_bc = batch.ids_bc.narrow(1, 4, 3)});
  batch.segments_bc = long_tensor({0, 0, 0, 0, 1, 1, 1, -1, -1});
  const auto packed = model.evaluate(batch);
  CHECK(relative_error(packed.narrow(1, 0, 4), apart_one) < 1e-12);
  CHECK(relative_error(packed.narrow(1, 4, 3), apart_two) < 1e-12);
}

TEST_CASE("parameters are counted by formula", "[model]") {
  auto config = small_config(ScaledDotProductOptions{});
  config.embedding.tie = GENERATE(true, false);
  config.bias = GENERATE(true, false);
  config.norm = any_norm();
  const Gpt model(config, vocabulary);
  const std::int64_t d = 8, hidden = 32, bias = config.bias;
  const std::int64_t norms = std::map<NormPosition, std::int64_t>{
      {NormPosition::pre, 5}, {NormPosition::post, 4}, {NormPosition::both, 9}}[position_of(config.norm)];
  const std::int64_t norm_bias = is<LayerNormConfig>(config.norm) ? bias : 0;
  const auto mixers = 2 * (4 * d * d + bias * 4 * d);
  const auto counts = count_parameters(model);
  CHECK(counts.mixers == mixers);
  CHECK(counts.all == vocabulary * d * (config.embedding.tie ? 1 : 2) + 12 * d + mixers +
                          2 * (2 * d * hidden + bias * (hidden + d)) + norms * d * (1 + norm_bias));
}

TEST_CASE("initialisation has GPT-2's spreads and is a function of seed and name", "[model]") {
  TransformerConfig config;
  config.bias = true;
  config.mixer = GENERATE(MixerConfig(ScaledDotProductOptions{.score_std = std::nullopt}), MixerConfig(MetricOptions{}),
                          MixerConfig(QuadraticOptions{.form = QuadraticForm::full}));
  Gpt model(config, 65);
  initialise(model, 5);
  for (const auto& parameter : model.named_parameters()) {
    INFO(parameter.key());
    const auto& value = parameter.value();
    const auto& name = parameter.key();
    if (name.ends_with("packed_metric")) {
      CHECK(value.std().item<double>() == Approx(1 / (128 * 0.02 * 0.02 * std::sqrt(32.0))).epsilon(0.05));
    } else if (name.ends_with("full_form")) {
      CHECK(value.std().item<double>() == Approx(std::sqrt(32.0) / 128).epsilon(0.05));
    } else if (name.ends_with("bias")) {
      CHECK(value.abs().max().item<double>() == 0);
    } else if (value.dim() == 1) {
      CHECK(torch::equal(value, torch::ones_like(value)));
    } else {
      const bool ends_branch = name.ends_with("mixer.output.weight") || name.ends_with("down.weight");
      const double expected = ends_branch ? 0.02 / std::sqrt(8.0) : 0.02;
      CHECK(value.std().item<double>() == Approx(expected).epsilon(0.05));
      CHECK(std::abs(value.mean().item<double>()) < expected * 5 / std::sqrt(value.numel()));
    }
  }
}

// Vectors of each head, [n, c, k], in float64: `width` rows of a projection from `first` on, normalised if asked for,
// with that gain where the mixer has it.
torch::Tensor head_vectors(const Mixer& mixer, const torch::Tensor& x_cd, std::int64_t heads,
                           const std::string& projection, std::int64_t first, bool normalised,
                           const std::string& gain) {
  const auto parameters = mixer.named_parameters();
  const auto width = x_cd.size(1);
  const auto rows_nkd = parameters[projection].to(torch::kDouble).narrow(0, first, width).unflatten(0, {heads, -1});
  const auto p_nck = torch::einsum("nkd,cd->nck", {rows_nkd, x_cd});
  if (!normalised) return p_nck;
  const auto unit_nck = p_nck * p_nck.square().mean(-1, true).add(1e-6).rsqrt();
  return parameters.contains(gain) ? unit_nck * parameters[gain].to(torch::kDouble) : unit_nck;
}

// The form of a metric or quadratic mixer, [n, k, k], from its parameters; its norm is not fixed yet.
torch::Tensor learned_form_of(const Mixer& mixer, const MetricOptions* metric, std::int64_t heads, std::int64_t k) {
  const auto parameters = mixer.named_parameters();
  if (metric == nullptr) return parameters["form"].to(torch::kDouble);
  if (metric->constraint == MetricConstraint::identity) return torch::eye(k, torch::kDouble).repeat({heads, 1, 1});
  if (metric->constraint == MetricConstraint::diagonal) {
    const auto m_nk = parameters["diagonal_metric"].to(torch::kDouble);
    return torch::diag_embed(metric->score == MetricScore::distance ? torch::log1p(m_nk.exp()) : m_nk);
  }
  const bool psd = metric->constraint == MetricConstraint::psd;
  const bool published = metric->score == MetricScore::as_published;
  const auto packed_nl = parameters[psd ? "packed_factor" : "packed_metric"].to(torch::kDouble);
  auto lower_nkk = torch::zeros({heads, k, k}, torch::kDouble);
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j <= i; ++j)
      lower_nkk.select(1, i).select(1, j).copy_(packed_nl.select(1, i * (i + 1) / 2 + j) *
                                                (published && i != j ? 2 : 1));
  if (published) return 2 * lower_nkk;
  return psd ? torch::matmul(lower_nkk, lower_nkk.mT()) : lower_nkk + lower_nkk.tril(-1).mT();
}

// The same with a fixed norm, if asked for; of the published formula, which is not symmetric, M has that norm.
torch::Tensor form_of(const Mixer& mixer, const MetricOptions* metric, bool fixed_norm, std::int64_t heads,
                      std::int64_t k) {
  const auto form_nkk = learned_form_of(mixer, metric, heads, k);
  if (!fixed_norm) return form_nkk;
  const bool published = metric != nullptr && metric->score == MetricScore::as_published;
  const auto metric_nkk = published ? form_nkk / 4 + form_nkk.mT() / 4 : form_nkk;
  return form_nkk * std::sqrt(static_cast<double>(k)) / metric_nkk.square().sum({1, 2}, true).sqrt();
}

// Without their temperature, the formulas of docs/architecture.md for one mixer's scores of x_cd against y_ed, in
// float64: [n, c, e]. The row term of a distance is left out: the softmax cancels it.
torch::Tensor plain_scores_of(const Mixer& mixer, const MixerConfig& options, const torch::Tensor& x_cd,
                              const torch::Tensor& y_ed, std::int64_t heads) {
  const auto width = x_cd.size(1), k = width / heads;
  const auto root_k = std::sqrt(static_cast<double>(k));
  if (const auto* dot = options.get_if<ScaledDotProductOptions>()) {
    const std::string all = "query_key_value.weight";
    const auto q = head_vectors(mixer, x_cd, heads, all, 0, dot->qk_norm, "query_norm.weight");
    const auto key = head_vectors(mixer, y_ed, heads, all, width, dot->qk_norm, "key_norm.weight");
    return torch::einsum("nck,nek->nce", {q, key}) / root_k;
  }
  const auto* quadratic = options.get_if<QuadraticOptions>();
  if (quadratic != nullptr && quadratic->form == QuadraticForm::full)
    return torch::einsum("cd,ndf,ef->nce", {x_cd, mixer.named_parameters()["full_form"].to(torch::kDouble), y_ed}) /
           root_k;
  const auto* metric = options.get_if<MetricOptions>();
  const bool normalised = metric != nullptr ? metric->qk_norm : quadratic->qk_norm;
  const bool fixed_norm = metric != nullptr ? metric->fixed_norm : quadratic->fixed_norm;
  const auto p = head_vectors(mixer, x_cd, heads, "projection.weight", 0, normalised, "norm.weight");
  const auto other = head_vectors(mixer, y_ed, heads, "projection.weight", 0, normalised, "norm.weight");
  const auto form_nkk = form_of(mixer, metric, fixed_norm, heads, k);
  auto scores_nce = torch::einsum("nck,nkj,nej->nce", {p, form_nkk, other});
  if (metric != nullptr && metric->score == MetricScore::distance)
    scores_nce = 2 * scores_nce - torch::einsum("nek,nkj,nej->ne", {other, form_nkk, other}).unsqueeze(1);
  return scores_nce / root_k;
}

torch::Tensor scores_of(const Mixer& mixer, const MixerConfig& options, const torch::Tensor& x_cd,
                        const torch::Tensor& y_ed, std::int64_t heads) {
  const auto scores_nce = plain_scores_of(mixer, options, x_cd, y_ed, heads);
  const auto parameters = mixer.named_parameters(/*recurse=*/false);
  const auto* temperature_n = parameters.find("temperature");
  return temperature_n == nullptr ? scores_nce : scores_nce * temperature_n->to(torch::kDouble).view({-1, 1, 1});
}

TEST_CASE("the scores of different tokens start with the configured standard deviation", "[model]") {
  const double wanted = GENERATE(3.0, 1.0, 0.05);
  TransformerConfig config;
  config.mixer = any_mixer();
  const auto set_score_std = [&]<class Options>(Options* options) {
    if (options != nullptr) options->score_std = wanted;
    return options != nullptr;
  };
  const bool has_scores = set_score_std(config.mixer.get_if<ScaledDotProductOptions>()) ||
                          set_score_std(config.mixer.get_if<QuadraticOptions>()) ||
                          set_score_std(config.mixer.get_if<MetricOptions>());
  if (!has_scores) return does_not_apply("no scores");
  Gpt model(config, vocabulary);
  initialise(model, 5);
  torch::manual_seed(3);
  const auto normalised = [&] { return torch::randn({300, config.width}, torch::kDouble); };
  const auto x_cd = normalised(), y_ed = normalised();
  int mixers = 0;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* mixer = dynamic_cast<const Mixer*>(module.get());
    if (mixer == nullptr) continue;
    const auto scores_nce = scores_of(*mixer, config.mixer, x_cd, y_ed, config.heads);
    const auto std = scores_nce.var({2}).mean().sqrt().item<double>();  // along the context
    CHECK(std == Approx(wanted).epsilon(0.15));
    ++mixers;
  }
  CHECK(mixers == config.layers);
}

TEST_CASE("score_std: null draws queries and keys from N(0, 0.02), a number scales those same draws", "[model]") {
  TransformerConfig config;
  config.mixer = ScaledDotProductOptions{.score_std = std::nullopt};
  Gpt published(config, vocabulary);
  config.mixer = ScaledDotProductOptions{.score_std = 1};
  Gpt scaled(config, vocabulary);
  initialise(published, 5);
  initialise(scaled, 5);
  const auto theirs = published.named_parameters();
  const double factor = std::sqrt(1 / (128 * 0.02 * 0.02));
  for (const auto& parameter : scaled.named_parameters()) {
    const auto& other = theirs[parameter.key()];
    if (!parameter.key().ends_with("query_key_value.weight")) {
      CHECK(torch::equal(parameter.value(), other));
      continue;
    }
    CHECK(torch::allclose(parameter.value().narrow(0, 0, 256), factor * other.narrow(0, 0, 256), 1e-6, 0));
    CHECK(torch::equal(parameter.value().narrow(0, 256, 128), other.narrow(0, 256, 128)));
  }
}

TEST_CASE("a form of a fixed norm starts with larger projections but values of the usual size", "[model]") {
  TransformerConfig config;
  config.mixer = GENERATE(MixerConfig(MetricOptions{.constraint = MetricConstraint::identity}),
                          MixerConfig(MetricOptions{.fixed_norm = true}),
                          MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .fixed_norm = true}),
                          MixerConfig(QuadraticOptions{.fixed_norm = true}));
  Gpt model(config, vocabulary);
  initialise(model, 5);
  for (const auto& parameter : model.named_parameters()) {
    if (!parameter.key().ends_with("projection.weight")) continue;
    const auto output = parameter.key().substr(0, parameter.key().find("projection")) + "output.weight";
    const double product = (parameter.value().std() * model.named_parameters()[output].std()).item<double>();
    CHECK(product == Approx(0.02 * 0.02 / std::sqrt(8.0)).epsilon(0.05));
  }
}

TEST_CASE("values of their own keep their size, whatever the form needs", "[model]") {
  TransformerConfig config;
  config.mixer = GENERATE(MixerConfig(MetricOptions{.values = MixerValues::own, .fixed_norm = true}),
                          MixerConfig(QuadraticOptions{.values = MixerValues::own, .fixed_norm = true}));
  Gpt model(config, vocabulary);
  initialise(model, 5);
  const auto parameters = model.named_parameters();
  const std::string mixer = "transformer.blocks.1.mixer.";
  const auto values = parameters[mixer + "projection.weight"].narrow(0, config.width, config.width);
  CHECK(values.std().item<double>() == Approx(0.02).epsilon(0.05));
  CHECK(parameters[mixer + "output.weight"].std().item<double>() == Approx(0.02 / std::sqrt(8.0)).epsilon(0.05));
}

TEST_CASE("a temperature starts at 1 where a form can have the norm that scores need, else it has their size",
          "[model]") {
  TransformerConfig config;
  const auto [mixer, expected] = GENERATE(table<MixerConfig, double>({
      {ScaledDotProductOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true}, 0.3},
      {ScaledDotProductOptions{.score_std = std::nullopt, .qk_norm = true, .learned_temperature = true}, 1},
      {MetricOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true}, 1},
      {MetricOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true, .fixed_norm = true}, 0.3},
      {MetricOptions{
           .constraint = MetricConstraint::identity, .score_std = 0.3, .qk_norm = true, .learned_temperature = true},
       0.3},
      {QuadraticOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true}, 1},
      {QuadraticOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true, .fixed_norm = true}, 0.3},
  }));
  config.mixer = mixer;
  Gpt model(config, vocabulary);
  initialise(model, 5);
  const auto parameters = model.named_parameters();
  const std::string name = "transformer.blocks.1.mixer.";
  const auto& temperature_n = parameters[name + "temperature"];
  CHECK(torch::allclose(temperature_n, torch::full({config.heads}, expected), 1e-6, 0));
  for (const auto* norm : {"norm.weight", "query_norm.weight", "key_norm.weight"})
    CHECK_FALSE(parameters.contains(name + norm));
}

TEST_CASE("models that differ in their mixer share everything else at initialisation", "[model]") {
  Gpt one(small_config(MetricOptions{}), vocabulary), other(small_config(ScaledDotProductOptions{}), vocabulary);
  initialise(one, 5);
  initialise(other, 5);
  const auto parameters = other.named_parameters();
  int shared = 0;
  for (const auto& parameter : one.named_parameters()) {
    if (parameter.key().find(".mixer.") != std::string::npos) continue;
    CHECK(torch::equal(parameter.value(), parameters[parameter.key()]));
    ++shared;
  }
  CHECK(shared == 2 + 2 * 4 + 1);
  Gpt another_seed(small_config(MetricOptions{}), vocabulary);
  initialise(another_seed, 6);
  CHECK_FALSE(torch::equal(one.parameters()[0], another_seed.parameters()[0]));
}

TEST_CASE("dropout acts in training only, and draws the same from the same place", "[model]") {
  auto config = small_config(any_mixer());
  config.dropout = 0.5;
  Gpt model(config, vocabulary);
  initialise(model, 1);
  const auto batch = random_batch(2, 12);
  CHECK(torch::equal(model.evaluate(batch), model.evaluate(batch)));
  StepPasses passes(1, torch::kCPU);
  passes.set_step(0);
  auto pass = passes.pass(0);
  const auto place = pass.random.place();
  const auto dropped = model.forward(batch, nullptr, pass);
  CHECK_FALSE(torch::equal(dropped, model.evaluate(batch)));
  CHECK_FALSE(torch::equal(dropped, model.forward(batch, nullptr, pass)));
  pass.random.go_back(place);
  CHECK(torch::equal(dropped, model.forward(batch, nullptr, pass)));
}

TEST_CASE("the flat buffer holds all parameters and receives all gradients", "[model]") {
  torch::manual_seed(4);
  Gpt model(small_config(), vocabulary), plain(small_config(), vocabulary);
  initialise(model, 3);
  initialise(plain, 3);
  ParameterBuffer buffer(model);
  const auto batch = random_batch(2, 12);
  const auto loss = [&](Gpt& m) { return m.evaluate(batch).square().sum(); };
  CHECK(torch::equal(model.evaluate(batch), plain.evaluate(batch)));
  loss(model).backward();
  loss(plain).backward();
  const auto expected = plain.named_parameters();
  std::int64_t total = 0, in_views = 0;
  for (const auto& view : buffer.views()) {
    CHECK(torch::allclose(ParameterBuffer::part(buffer.gradients(), view), expected[view.name].grad()));
    CHECK(torch::equal(ParameterBuffer::part(buffer.values(), view), expected[view.name]));
    CHECK((view.decay != Decay::none) == (expected[view.name].dim() >= 2));
    total += expected[view.name].numel();
    in_views += view.count;
  }
  CHECK(in_views == total);
  CHECK(buffer.gradients().norm().item<double>() == Approx([&] {
                                                      double sum = 0;
                                                      for (const auto& parameter : plain.parameters())
                                                        sum += parameter.grad().square().sum().item<double>();
                                                      return std::sqrt(sum);
                                                    }())
                                                        .epsilon(1e-6));
  // What is written to the buffer is what the model uses.
  buffer.values().zero_();
  CHECK(model.evaluate(batch).abs().max().item<double>() == 0);
}

}  // namespace metaformer
