// Encoders with decoders: a sequence is generated from another one.

#include "attention/mixer.h"
#include "config/experiment_config.h"
#include "config/loader.h"
#include "model/make_model.h"
#include "model/parameters.h"
#include "model/token_model.h"
#include "support/torch_catch.h"

namespace metaformer::test_encoder_decoder {

namespace {

constexpr std::int64_t vocabulary = 11;

ExperimentConfig config_with(std::vector<std::string> more = {}) {
  const std::vector<std::string> small = {"task=sequence_to_sequence",
                                          "model={kind: encoder_decoder, layers: 2, heads: 2, width: 16, context: 12, "
                                          "positions: learned, encoder: {layers: 3}}"};
  more.insert(more.begin(), small.begin(), small.end());
  return default_experiment(more).config;
}

std::shared_ptr<SequenceModel> model_of(const ExperimentConfig& config) {
  auto model = make_model(config, {.vocabulary = vocabulary});
  initialise(*model, 3);
  return model;
}

Batch some_batch(std::int64_t rows = 3) {
  torch::manual_seed(5);
  const auto draw = [&](std::int64_t length) { return torch::randint(vocabulary + 1, {rows, length}, torch::kLong); };
  Batch batch{.ids_bc = draw(7)};
  batch.source_ids_bs = draw(9);
  const auto length_b1 = torch::tensor({std::int64_t{9}, std::int64_t{4}, std::int64_t{7}}).unsqueeze(1);
  batch.source_segments_bs = -(torch::arange(9).unsqueeze(0) >= length_b1.narrow(0, 0, rows)).to(torch::kLong);
  return batch;
}

bool are_near(const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 1e-5, 1e-5); }

const std::vector<std::vector<std::string>> mixers = {
    {"model.mixer=scaled_dot_product", "model.cross_mixer=scaled_dot_product", "model.encoder.mixer=quadratic"},
    {"model.mixer=scaled_dot_product", "model.cross_mixer={kind: scaled_dot_product, qk_norm: true}"},
    {"model.mixer=metric", "model.cross_mixer=metric", "model.encoder.mixer=metric"},
    {"model.mixer=metric", "model.cross_mixer={kind: metric, constraint: psd, score: distance, values: own}"},
    {"model.mixer=quadratic", "model.cross_mixer={kind: quadratic, qk_norm: true}", "model.encoder.mixer=lsh"},
    {"model.mixer={kind: metric, qk_norm: true, learned_temperature: true}",
     "model.cross_mixer={kind: metric, qk_norm: true, learned_temperature: true, fixed_norm: true}"},
    {"model.mixer={kind: scaled_dot_product, qk_norm: true, learned_temperature: true}",
     "model.cross_mixer={kind: scaled_dot_product, qk_norm: true, learned_temperature: true}"},
    {"model.mixer={kind: scaled_dot_product, window: 3}",
     "model.cross_mixer={kind: scaled_dot_product, key_value_heads: 1, sinks: true}",
     "model.encoder.mixer={kind: scaled_dot_product, window: 3, weights: sigmoid}"},
    {"model.mixer=differential", "model.cross_mixer=differential", "model.encoder.mixer=differential"},
    {"model.mixer={kind: scaled_dot_product, weights: sigmoid}",
     "model.cross_mixer={kind: scaled_dot_product, weights: sigmoid}"},
    {"model.mixer=average_pooling", "model.cross_mixer=quadratic", "model.encoder.mixer=average_pooling"},
    {"model.mixer=identity", "model.cross_mixer=metric", "model.encoder.mixer=identity"},
};

}  // namespace

TEST_CASE("a target that is generated token by token gets the logits of one pass", "[encoder_decoder]") {
  const auto model = model_of(config_with(GENERATE(from_range(mixers))));
  const auto batch = some_batch();
  const auto whole_bcv = model->evaluate(batch);
  const auto state = model->new_state(3, 7);
  for (std::int64_t place = 0; place < 7; ++place) {
    Batch next;
    if (place == 0) next = batch;  // includes the source
    next.ids_bc = batch.ids_bc.narrow(1, place, 1);
    const auto logits = model->evaluate(next, state.get());
    CHECK(are_near(logits, whole_bcv.narrow(1, place, 1)));
  }
}

TEST_CASE("sequences of a state can be reordered during generation", "[encoder_decoder]") {
  const auto model = model_of(config_with(GENERATE(from_range(mixers))));
  const auto batch = some_batch();
  const auto rows_b = torch::tensor({2, 0, 0, 1});
  const auto state = model->new_state(3, 7);
  Batch first = batch;
  first.ids_bc = batch.ids_bc.narrow(1, 0, 3);
  model->evaluate(first, state.get());
  state_as<EncoderDecoderState>(*state).select(rows_b);
  Batch rest;
  rest.ids_bc = batch.ids_bc.narrow(1, 3, 4).index_select(0, rows_b);
  const auto logits = model->evaluate(rest, state.get());
  CHECK(are_near(logits, model->evaluate(batch).narrow(1, 3, 4).index_select(0, rows_b)));
}

TEST_CASE("a token sees the whole source, but no later tokens of the target and no padding", "[encoder_decoder]") {
  const auto model = model_of(config_with(GENERATE(from_range(mixers))));
  const auto batch = some_batch();
  const auto logits = model->evaluate(batch);
  auto other = batch;
  other.ids_bc = batch.ids_bc.clone();
  other.ids_bc.select(1, 5).add_(1).remainder_(vocabulary);
  const auto after = model->evaluate(other);
  CHECK(torch::equal(after.narrow(1, 0, 5), logits.narrow(1, 0, 5)));
  CHECK_FALSE(torch::equal(after.narrow(1, 5, 2), logits.narrow(1, 5, 2)));

  other = batch;
  other.source_ids_bs = torch::where(batch.source_segments_bs < 0, 1, batch.source_ids_bs);
  CHECK(are_near(model->evaluate(other), logits));
  for (std::int64_t place = 0; place < 4; ++place) {
    other.source_ids_bs = batch.source_ids_bs.clone();
    other.source_ids_bs.select(1, place).add_(1).remainder_(vocabulary);
    const auto changed_bc = (model->evaluate(other) != logits).any(2);
    CHECK(changed_bc.all().item<bool>());
  }
}

TEST_CASE("every parameter gets a gradient", "[encoder_decoder]") {
  const auto model = model_of(config_with(GENERATE(from_range(mixers))));
  auto batch = some_batch();
  Pass pass;
  model->forward(batch, nullptr, pass).square().sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    INFO(parameter.key());
    REQUIRE(parameter.value().grad().defined());
    CHECK(parameter.value().grad().abs().sum().item<double>() > 0);
  }
}

// Each side has its own projection, and one form compares them: r_ce = (P' x_c) M (P y_e) / sqrt(k).
TEST_CASE("metric and quadratic mixers compare two sequences by one form", "[encoder_decoder]") {
  const auto cross = GENERATE("model.cross_mixer=metric", "model.cross_mixer=quadratic",
                              "model.cross_mixer={kind: metric, constraint: psd, score: distance}",
                              "model.cross_mixer={kind: metric, backend: reference}");
  const auto config = config_with({cross});
  auto shape = std::get<EncoderDecoderConfig>(config.model).cross_shape();
  const auto mixer = make_mixer(std::get<EncoderDecoderConfig>(config.model).cross_mixer, shape);
  initialise(*mixer, 4, 1);
  mixer->to(torch::kDouble);
  const auto x_cd = torch::randn({5, 16}, torch::kDouble), y_ed = torch::randn({8, 16}, torch::kDouble);
  const Visibility all;
  Pass pass;
  const auto t_cd = mixer->forward(x_cd.unsqueeze(0), y_ed.unsqueeze(0), all, nullptr, pass)[0];
  const auto weights = mixer->named_parameters();
  const auto heads = [](const torch::Tensor& p_cd) { return p_cd.view({-1, 2, 8}).transpose(0, 1); };
  const auto p_nck = heads(torch::matmul(x_cd, weights["query_projection.weight"].t())),
             p_nek = heads(torch::matmul(y_ed, weights["projection.weight"].t()));
  const auto form = mixer->score_form();
  REQUIRE(form);
  // x F y by the mixer's score_form().
  auto score_nce =
      torch::matmul(torch::matmul(form->left_nrd, x_cd.t()).transpose(1, 2), torch::matmul(form->right_nrd, y_ed.t()));
  if (std::string(cross).find("distance") != std::string::npos) {
    // The form has the term 2 p M p'; terms that are constant along a row cancel.
    const auto image_nek = torch::matmul(form->right_nrd / 2, y_ed.t()).transpose(1, 2);
    score_nce = score_nce - (image_nek * p_nek).sum(-1).unsqueeze(1);
  }
  const auto weight_nce = torch::softmax(score_nce / std::sqrt(8.0), -1);
  const auto mixed_cd = torch::matmul(weight_nce, p_nek).transpose(0, 1).reshape({5, 16});
  const auto expected_cd = torch::matmul(mixed_cd, weights["output.weight"].t());
  CHECK(torch::allclose(t_cd, expected_cd, 1e-9, 1e-9));
  CHECK(torch::allclose(torch::matmul(form->left_nrd, x_cd.t()).transpose(1, 2), p_nck, 1e-9, 1e-9));
}

}  // namespace metaformer::test_encoder_decoder
