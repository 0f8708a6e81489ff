#include "config/mixer_config.h"
#include "model/classifier.h"
#include "model/embedding.h"
#include "model/small_models.h"
#include "model/transformer.h"

namespace metaformer::test_embeddings {

namespace {

TransformerConfig small_config() {
  auto config = small_transformer(NoneOptions{}, 6, 7);
  config.layers = config.heads = 1;
  return config;
}

std::shared_ptr<Classifier> made(const TransformerConfig& config, const HeadConfig& head = {}) {
  return std::make_shared<Classifier>(started(Classifier(config, head, vocabulary, 2)));
}

}  // namespace

TEST_CASE("an n-gram's bucket depends only on its tokens", "[embedding]") {
  const auto ids_bc = torch::tensor({{3, 5, 7, 3, 5}, {0, 0, 7, 3, 5}});
  for (const std::int64_t n : {2, 3}) {
    const auto buckets_bc = ngram_buckets(ids_bc, n, 1000);
    CHECK(buckets_bc.sizes() == ids_bc.sizes());
    CHECK(buckets_bc.min().item<std::int64_t>() >= 0);
    CHECK(buckets_bc.max().item<std::int64_t>() < 1000);
    // "3 5" and "7 3 5" end at several places.
    CHECK(torch::equal(buckets_bc[0][4], buckets_bc[1][4]));
    if (n == 2) CHECK(torch::equal(buckets_bc[0][1], buckets_bc[0][4]));
    // Later tokens, such as padding, have no effect.
    CHECK(torch::equal(ngram_buckets(ids_bc.narrow(1, 0, 3), n, 1000), buckets_bc.narrow(1, 0, 3)));
  }
  // The first token's n-gram differs from that of the same token later, and the order of tokens has an effect.
  const auto pairs = ngram_buckets(torch::tensor({{3, 3, 5, 3}}), 2, 1 << 20)[0];
  CHECK_FALSE(torch::equal(pairs[0], pairs[1]));
  CHECK_FALSE(torch::equal(pairs[2], pairs[3]));
}

TEST_CASE("pairs of tokens are spread over the buckets like random draws", "[embedding]") {
  constexpr std::int64_t side = 128, buckets = 1 << 12;
  const auto first = torch::arange(side).repeat_interleave(side), second = torch::arange(side).repeat({side});
  const auto used = ngram_buckets(torch::stack({first, second}, 1), 2, buckets).select(1, 1);
  const auto counts = torch::bincount(used, {}, buckets).to(torch::kDouble);
  // Chi squared over its degrees of freedom has mean 1 and standard deviation sqrt(2 / 4096).
  const double expected = static_cast<double>(side * side) / buckets;
  const double chi_squared = ((counts - expected).square() / expected).sum().item<double>();
  CHECK(std::abs(chi_squared / (buckets - 1) - 1) < 5 * std::sqrt(2.0 / buckets));
}

TEST_CASE("without positions the order of tokens has no effect, but with n-grams it has one", "[embedding]") {
  auto config = small_config();
  config.positions = NoPositionsConfig{};
  const torch::NoGradGuard no_grad;
  const auto ids = torch::tensor({{1, 4, 2, 9, 3}});
  const auto difference = [&](const TransformerConfig& given) {
    const auto model = made(given, PerTokenMeanHeadConfig{});
    return (model->evaluate({.ids_bc = ids}) - model->evaluate({.ids_bc = ids.flip(1)})).abs().max().item<double>();
  };
  CHECK(difference(config) < 1e-6);
  config.embedding.ngrams = {.order = 2, .buckets = 64};
  CHECK(difference(config) > 1e-3);
}

TEST_CASE("dropout of embeddings drops the same features at every token of a text", "[embedding]") {
  auto config = small_config();
  config.embedding.dropout = 0.5;
  std::get<LayerNormConfig>(config.norm).final = false;
  Transformer transformer(config, vocabulary, /*causal=*/false);
  const torch::NoGradGuard no_grad;
  for (auto& item : transformer->named_parameters()) {
    const bool is_token = item.key() == "token_embedding.weight";
    item.value().fill_(is_token ? 1 : 0);  // gains of 0, so that the branches add nothing
  }
  StepPasses passes(2, torch::kCPU);
  auto training = passes.pass(0);
  const auto x_bcd = transformer->forward({.ids_bc = torch::zeros({40, 5}, torch::kLong)}, nullptr, training);
  CHECK(torch::equal(x_bcd, x_bcd.narrow(1, 0, 1).expand_as(x_bcd)));
  const auto first_bd = x_bcd.select(1, 0);
  CHECK(((first_bd == 0) | (first_bd == 2)).all().item<bool>());  // kept features are doubled
  CHECK(std::abs(first_bd.mean().item<double>() - 1) < 5 / std::sqrt(240.0));
  CHECK_FALSE(torch::equal(first_bd[0], first_bd[1]));
  Pass evaluation;
  CHECK(torch::equal(transformer->forward({.ids_bc = torch::zeros({1, 5}, torch::kLong)}, nullptr, evaluation),
                     torch::ones({1, 5, 6})));
}

TEST_CASE("only embeddings of tokens and n-grams start with the standard deviation of model.embedding.std",
          "[embedding]") {
  auto config = small_config();
  config.embedding.ngrams = {.order = 2, .buckets = 500};
  const auto usual = made(config);
  config.embedding.std = 0.3;
  const auto wide = made(config);
  const auto usual_parameters = usual->named_parameters();
  for (const auto& item : wide->named_parameters()) {
    const auto& before = usual_parameters[item.key()];
    const bool told = item.key().ends_with("token_embedding.weight") || item.key().ends_with("ngram_embedding.weight");
    CHECK(torch::allclose(item.value(), told ? before * 15 : before));
  }
}

TEST_CASE("a scaled embedding is multiplied by its scale, and one with scale 0 has no effect", "[embedding]") {
  auto config = small_config();
  config.embedding.ngrams = {.order = 2, .buckets = 32};
  const auto plain = made(config);
  config.embedding.scale = EmbeddingScale::log_count_ratio;
  const auto model = made(config);
  const auto forward = [](Classifier& given, std::vector<std::int64_t> ids) {
    return given.evaluate({.ids_bc = torch::tensor(ids).unsqueeze(0)});
  };
  CHECK(torch::equal(forward(*plain, {1, 2, 3}), forward(*model, {1, 2, 3})));
  auto scale_v = torch::ones(vocabulary);
  scale_v[1] = 0;
  scale_v[2] = 0;
  scale_v[3] = 2;
  model->transformer()->scale_embeddings(scale_v, torch::zeros(32));
  CHECK(torch::equal(forward(*model, {1, 3}), forward(*model, {2, 3})));
  const torch::NoGradGuard no_grad;
  plain->named_parameters()["transformer.token_embedding.weight"].mul_(2);
  plain->named_parameters()["transformer.ngram_embedding.weight"].zero_();
  CHECK(torch::allclose(forward(*model, {3, 3}), forward(*plain, {3, 3})));
}

}  // namespace metaformer::test_embeddings
