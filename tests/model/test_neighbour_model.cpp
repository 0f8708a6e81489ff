// Regions that say which words stand beside them.

#include "model/initialise.h"
#include "model/make_model.h"
#include "model/memory_estimate.h"
#include "model/neighbour_model.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 7, width = 3, region = 2, distance = 3;
constexpr double absent_weight = 0.1;

ExperimentConfig config_of_neighbours() {
  ExperimentConfig config;
  config.task = NeighbouringWordsConfig{.distance = distance, .absent_weight = absent_weight, .data = {}};
  auto& model = transformer(config);
  model.layers = 0;
  model.width = width;
  model.context = 20;
  model.positions = NoPositionsConfig{};
  model.embedding.region = BagRegionConfig{.size = region};
  return config;
}

std::shared_ptr<NeighbourModel> made() {
  const auto config = config_of_neighbours();
  auto model = std::dynamic_pointer_cast<NeighbourModel>(make_model(config, {.vocabulary = vocabulary, .classes = 0}));
  REQUIRE(model != nullptr);
  model->to(torch::kDouble);
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_(0, 0.5);
  model->set_word_weights(torch::rand(vocabulary) + 0.1);
  return model;
}

// The error of the region that ends at token `c` of a text, with a score for every word on either side.
torch::Tensor error_by_definition(NeighbourModel& model, const std::vector<std::int64_t>& text, std::int64_t c) {
  const auto weights = model.named_parameters();
  const auto word_weight_v = model.named_buffers()["word_weight"];
  auto x_m = weights["transformer.region_embedding.bag.bias"];
  for (auto i = std::max<std::int64_t>(0, c - region + 1); i <= c; ++i)
    x_m = x_m + weights["transformer.region_embedding.bag.weight"][text[static_cast<std::size_t>(i)]];
  x_m = x_m.relu();
  const auto u_m = torch::cat({x_m / (1 + x_m.dot(x_m)).sqrt(), torch::ones(1, torch::kDouble)});
  const auto score_sv = weights["words.weight"].matmul(u_m).view({2, vocabulary});
  auto error = absent_weight * score_sv.square().sum();
  const auto add = [&](std::int64_t side, std::int64_t place) {
    if (place < 0 || place >= std::ssize(text)) return;
    const auto word = text[static_cast<std::size_t>(place)];
    const auto score = score_sv[side][word];
    error = error + word_weight_v[word] * ((score - 1).square() - absent_weight * score.square());
  };
  for (std::int64_t d = 1; d <= distance; ++d) {
    add(0, c - region + 1 - d);
    add(1, c + d);
  }
  return error;
}

}  // namespace

TEST_CASE("errors and their gradients are those of a score for every word on either side of a region", "[neighbours]") {
  const auto model = made();
  const std::vector<std::vector<std::int64_t>> texts = {{3, 1, 4, 1, 5, 2, 6, 5, 3}, {0, 2, 2}, {6}, {1, 6, 1, 0, 5}};
  // The first alone, the others in one row with padding behind.
  const Batch batch{.ids_bc = torch::tensor({{3, 1, 4, 1, 5, 2, 6, 5, 3, 0}, {0, 2, 2, 6, 1, 6, 1, 0, 5, 0}}),
                    .segments_bc = torch::tensor({{0, 0, 0, 0, 0, 0, 0, 0, 0, -1}, {0, 0, 0, 1, 2, 2, 2, 2, 2, -1}})};
  const auto gradients = [&] {
    std::vector<torch::Tensor> all;
    for (auto& parameter : model->parameters()) {
      all.push_back(parameter.grad().to_dense().clone());
      parameter.mutable_grad() = torch::Tensor();
    }
    return all;
  };
  std::vector<torch::Tensor> expected;
  for (const auto& text : texts)
    for (std::int64_t c = 0; c < std::ssize(text); ++c) expected.push_back(error_by_definition(*model, text, c));
  const auto expected_n = torch::stack(expected), weight_n = torch::randn({18}, torch::kDouble);
  const auto ours_n = model->evaluate(batch).squeeze(2).masked_select(batch.segments_bc >= 0);
  CHECK(torch::allclose(ours_n, expected_n, 1e-12, 1e-12));
  (expected_n * weight_n).sum().backward();
  const auto reference = gradients();
  (ours_n * weight_n).sum().backward();
  const auto ours = gradients();
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(torch::allclose(ours[i], reference[i], 1e-11, 1e-12));
}

TEST_CASE("a row without segments is one text", "[neighbours]") {
  const auto model = made();
  const auto ids_bc = torch::tensor({{3, 1, 4, 1, 5, 2, 6}});
  CHECK(torch::equal(model->evaluate({.ids_bc = ids_bc}),
                     model->evaluate({.ids_bc = ids_bc, .segments_bc = torch::zeros_like(ids_bc)})));
}

TEST_CASE("parameters of a model of neighbouring words are counted to the number", "[neighbours][memory]") {
  const auto config = config_of_neighbours();
  CHECK(count_parameters(config, vocabulary, 0) == count_parameters(*made()).all);
}

}  // namespace metaformer
