// What language models with an LSTM or a GRU compute.

#include <cmath>

#include "model/recurrent_support.h"

namespace metaformer {

namespace {

// Segment by segment.
torch::Tensor read(RecurrentModel& model, const torch::Tensor& ids_bc, ModelState& state,
                   const torch::Tensor& segments_bc = {}) {
  std::vector<torch::Tensor> parts;
  for (std::int64_t first = 0; first < ids_bc.size(1); first += segment) {
    Batch part{.ids_bc = ids_bc.narrow(1, first, segment)};
    if (segments_bc.defined()) part.segments_bc = segments_bc.narrow(1, first, segment);
    parts.push_back(model.evaluate(part, &state));
  }
  return torch::cat(parts, 1);
}

// Of one token through one layer, as Hochreiter and Schmidhuber (1997) with forget gates, or Cho et al. (2014) with the
// reset gate behind the product, have it.
void step(const RecurrentModel& model, RecurrentCell cell, std::int64_t layer, torch::Tensor& x_bd, torch::Tensor& h_bd,
          torch::Tensor& c_bd) {
  const auto product = [&](const char* part, const torch::Tensor& y_bd) {
    return torch::matmul(y_bd, weight_of(model, std::string("weight_") + part, layer).t()) +
           weight_of(model, std::string("bias_") + part, layer);
  };
  const auto gates = cell == RecurrentCell::lstm ? 4 : 3;
  const auto of_x = product("ih", x_bd).chunk(gates, 1), of_h = product("hh", h_bd).chunk(gates, 1);
  if (cell == RecurrentCell::lstm) {
    const auto input = torch::sigmoid(of_x[0] + of_h[0]), forget = torch::sigmoid(of_x[1] + of_h[1]),
               fresh = torch::tanh(of_x[2] + of_h[2]), output = torch::sigmoid(of_x[3] + of_h[3]);
    c_bd = forget * c_bd + input * fresh;
    h_bd = output * torch::tanh(c_bd);
  } else {
    const auto reset = torch::sigmoid(of_x[0] + of_h[0]), update = torch::sigmoid(of_x[1] + of_h[1]);
    h_bd = (1 - update) * torch::tanh(of_x[2] + reset * of_h[2]) + update * h_bd;
  }
  x_bd = h_bd;
}

torch::Tensor by_formula(const RecurrentModel& model, const RecurrentConfig& config, const torch::Tensor& ids_bc) {
  const auto table_vd = model.named_parameters()["token_embedding.weight"].to(torch::kDouble);
  const auto head_vd = config.embedding.tie ? table_vd : model.named_parameters()["head.weight"].to(torch::kDouble);
  const auto zeros_bd = torch::zeros({ids_bc.size(0), config.width}, torch::kDouble);
  std::vector<torch::Tensor> h(static_cast<std::size_t>(config.layers), zeros_bd), c = h, logits;
  for (std::int64_t t = 0; t < ids_bc.size(1); ++t) {
    auto x_bd = torch::embedding(table_vd, ids_bc.select(1, t));
    if (config.embedding.scale == EmbeddingScale::sqrt_width)
      x_bd = x_bd * std::sqrt(static_cast<double>(config.width));
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      const auto i = static_cast<std::size_t>(layer);
      step(model, config.cell, layer, x_bd, h[i], c[i]);
    }
    logits.push_back(torch::matmul(x_bd, head_vd.t()));
  }
  return torch::stack(logits, 1);
}

}  // namespace

TEST_CASE("a recurrent model computes the published formulas", "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto config = any_config();
  config.embedding.tie = GENERATE(true, false);
  config.embedding.scale = GENERATE(EmbeddingScale::none, EmbeddingScale::sqrt_width);
  const auto ids_bc = random_ids(11);
  auto model = model_of(config);
  CHECK(close(model.evaluate({.ids_bc = ids_bc}), by_formula(model, config, ids_bc)));
  auto narrow = model_of(config, torch::kFloat);
  CHECK(torch::allclose(narrow.evaluate({.ids_bc = ids_bc}).to(torch::kDouble), by_formula(narrow, config, ids_bc),
                        1e-5, 1e-5));
}

TEST_CASE("segments with a carried state are one long segment", "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto config = any_config();
  config.carry_state = true;
  auto model = model_of(config);
  const auto ids_bc = random_ids(4 * segment);
  const auto state = GENERATE(true, false) ? model.new_memory() : model.new_state(batch, segment);
  CHECK(close(read(model, ids_bc, *state), model.evaluate({.ids_bc = ids_bc})));
  CHECK(state->length() == 4 * segment);
}

TEST_CASE("without a carried state every batch starts from zeros", "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto model = model_of(any_config());
  CHECK(model.new_memory() == nullptr);
  CHECK_FALSE(model.remembers());
  const auto ids_bc = random_ids(segment);
  const auto first_bcv = model.evaluate({.ids_bc = ids_bc});
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc}), first_bcv));
  const auto state = model.new_state(batch, segment);
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc}, state.get()), first_bcv));
  CHECK_FALSE(torch::equal(model.evaluate({.ids_bc = ids_bc}, state.get()), first_bcv));
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc, .begins = true}, state.get()), first_bcv));
  state->reset();
  CHECK(state->length() == 0);
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc}, state.get()), first_bcv));
}

TEST_CASE("a recurrent model generates what the whole sequence gives", "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto model = model_of(any_config());
  const auto ids_bc = random_ids(17);
  const auto whole_bcv = model.evaluate({.ids_bc = ids_bc});
  const auto state = model.new_state(batch, segment);
  std::int64_t done = 0;
  for (const std::int64_t count : {3, 1, 1, 8, 1, 3}) {
    const auto part_bcv = model.evaluate({.ids_bc = ids_bc.narrow(1, done, count)}, state.get());
    CHECK(close(part_bcv, whole_bcv.narrow(1, done, count)));
    done += count;
  }
}

TEST_CASE("a token of a recurrent model changes its own logits and later ones only", "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto model = model_of(any_config());
  const auto ids_bc = random_ids(9);
  const auto logits_bcv = model.evaluate({.ids_bc = ids_bc});
  for (std::int64_t changed = 0; changed < 9; ++changed) {
    auto other_bc = ids_bc.clone();
    other_bc.select(1, changed).add_(1).remainder_(vocabulary);
    const auto other_bcv = model.evaluate({.ids_bc = other_bc});
    for (std::int64_t c = 0; c < 9; ++c)
      CHECK(torch::equal(logits_bcv.select(1, c), other_bcv.select(1, c)) == (c < changed));
  }
}

TEST_CASE("rows of a recurrent model do not know of each other", "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto model = model_of(any_config());
  const auto ids_bc = random_ids(7);
  const auto together_bcv = model.evaluate({.ids_bc = ids_bc});
  for (std::int64_t row = 0; row < batch; ++row)
    CHECK(close(model.evaluate({.ids_bc = ids_bc.narrow(0, row, 1)})[0], together_bcv[row]));
}

TEST_CASE("a document begins with zeros, wherever it stands in its row", "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto config = any_config();
  config.carry_state = true;
  auto model = model_of(config);
  const auto ids_bc = random_ids(4 * segment);
  const auto lengths = GENERATE(values<std::vector<std::vector<std::int64_t>>>(
      {{{7, 9, 4}, {12, 8}}, {{5, 5, 10}, {20}}, {{1, 1, 18}, {2, 17, 1}}}));
  const auto segments_bc = documents(lengths);
  const auto memory = model.new_memory();
  const auto carried_bcv = read(model, ids_bc, *memory, segments_bc);
  const auto whole_bcv = model.evaluate({.ids_bc = ids_bc, .segments_bc = segments_bc});
  for (std::int64_t row = 0; row < batch; ++row) {
    std::int64_t first = 0;
    for (const auto length : lengths[static_cast<std::size_t>(row)]) {
      const auto alone_cv = model.evaluate({.ids_bc = ids_bc.narrow(0, row, 1).narrow(1, first, length)})[0];
      CHECK(close(carried_bcv[row].narrow(0, first, length), alone_cv));
      CHECK(close(whole_bcv[row].narrow(0, first, length), alone_cv));
      first += length;
    }
  }
}

TEST_CASE("a decoder of a recurrent model gives the logits of the whole sequence, and leaves its state",
          "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto config = any_config();
  config.width = GENERATE(6, 16, 37);
  config.layers = GENERATE(1, 3);
  config.embedding.tie = GENERATE(true, false);
  config.embedding.scale = EmbeddingScale::sqrt_width;
  auto model = model_of(config, torch::kFloat);
  const auto ids_bc = random_ids(20);
  const auto expected_bcv = by_formula(model, config, ids_bc);
  const auto state = model.new_state(batch, segment);
  model.evaluate({.ids_bc = ids_bc.narrow(1, 0, 3)}, state.get());
  const auto decoder = model.decoder(batch);
  REQUIRE(decoder != nullptr);
  decoder->resume(*state);
  for (std::int64_t place = 3; place < 15; ++place) {
    const std::vector<std::int32_t> tokens = {ids_bc[0][place].item<std::int32_t>(),
                                              ids_bc[1][place].item<std::int32_t>()};
    const auto logits = decoder->step(tokens);
    const auto logits_bv = torch::tensor(at::ArrayRef<float>(logits.data(), logits.size())).view({batch, vocabulary});
    const auto expected_bv = expected_bcv.select(1, place);
    CHECK(((logits_bv - expected_bv).norm() / expected_bv.norm()).item<double>() < 3e-6);
  }
  CHECK(state->length() == 15);
  const auto rest_bcv = model.evaluate({.ids_bc = ids_bc.narrow(1, 15, 5)}, state.get());
  CHECK(torch::allclose(rest_bcv.to(torch::kDouble), expected_bcv.narrow(1, 15, 5), 1e-5, 1e-5));
}

TEST_CASE("a recurrent model in another type has no decoder", "[recurrent]") {
  CHECK(model_of(any_config(), torch::kDouble).decoder(batch) == nullptr);
}

}  // namespace metaformer
