// Operations and states of models against counts by hand.

#include "config/loader.h"
#include "model/model_costs.h"
#include "support/catch.h"

namespace metaformer::test_model_costs {

TEST_CASE("the operations of a forward pass are those of its matrix products", "[costs]") {
  const auto model_of = [](const std::string& model) { return default_experiment({"model=" + model}).config.model; };
  const auto transformer = [&](const std::string& mixer) {
    return model_of("{kind: transformer, layers: 2, heads: 2, width: 8, context: 4, mixer: " + mixer + "}");
  };
  // 12 tokens, a head of 8 -> 10. A layer has products 8 -> 32 -> 8, 3 rows of 10 visible pairs, 2 heads of width 4. In
  // a recurrent layer each gate has a product with the input and one with the state.
  const double head = 2.0 * 12 * 8 * 10, layer = 2.0 * 12 * 2 * 8 * 32;
  const double attention = 4 * 2.0 * 12 * 8 * 8 + 3 * 2 * 2.0 * 10 * 2 * 4;
  const std::vector<std::pair<ModelConfig, double>> cases = {
      {transformer("identity"), 2 * layer + head},
      {transformer("scaled_dot_product"), 2 * (attention + layer) + head},
      {model_of("{kind: gru, layers: 2, width: 8}"), 2 * (2.0 * 12 * 2 * 3 * 8 * 8) + head},
      {model_of("{kind: lstm, layers: 1, width: 8}"), 2.0 * 12 * 2 * 4 * 8 * 8 + head},
      {model_of("{kind: feed_forward, window: 5, width: 4, hidden: 16}"), 2.0 * 12 * 20 * 16 + 2.0 * 12 * 16 * 10}};
  for (const auto& [model, forward] : cases) CHECK(forward_operations(model, 10, 12, true) == forward);
}

TEST_CASE("the size of a state is that of its mixers or recurrent layers in float32", "[costs]") {
  const auto state_of = [](const std::string& model, const std::string& task = "language_model") {
    return costs_of(default_experiment({"model=" + model, "task=" + task}).config, 10).state_bytes;
  };
  const auto transformer = [&](const std::string& mixer) {
    return "{kind: transformer, layers: 3, heads: 2, width: 8, context: 5, mixer: " + mixer + "}";
  };
  const std::int64_t keys_and_values = 2 * 5 * 8 * 4, matrices = 2 * 4 * 4 * 4;
  CHECK(state_of(transformer("scaled_dot_product")) == 3 * keys_and_values);
  CHECK(state_of(transformer("identity")) == 0);
  CHECK(state_of(transformer("{kind: delta_net, convolution: 0}")) == 3 * matrices);
  CHECK(state_of(transformer("[scaled_dot_product, identity, {mixer: {kind: delta_net, convolution: 0}}]")) ==
        keys_and_values + matrices);
  CHECK(state_of("{kind: lstm, layers: 3, width: 8}") == 3 * 2 * 8 * 4);
  CHECK(state_of("{kind: gru, layers: 3, width: 8}") == 3 * 8 * 4);
  CHECK_FALSE(state_of("{kind: feed_forward}"));
  CHECK_FALSE(state_of(transformer("scaled_dot_product"), "classification"));
}

TEST_CASE("a mixer in both directions costs twice as much, and a convolution before mixers has a state", "[costs]") {
  const auto figures_of = [](const std::string& task, const std::string& direction, const std::string& more = "") {
    const auto model = "{kind: transformer, layers: 1, heads: 2, width: 8, context: 5, mixer: {kind: retention" +
                       direction + "}" + more + "}";
    return mixer_figures(default_experiment({"task=" + task, "model=" + model}).config).value().costs;
  };
  const double matrix = 8 * 8, state = 2 * 4 * 4;
  CHECK(figures_of("classification", "").operations_per_token == 2 * (2 * (4 * matrix + 2 * state) + matrix));
  CHECK(figures_of("classification", ", direction: forward").operations_per_token == 2 * (5 * matrix + 2 * state));
  const auto plain = figures_of("language_model", ""), convolved = figures_of("language_model", "", ", convolution: 4");
  CHECK(convolved.operations_per_token == plain.operations_per_token + 2 * 4 * 8);
  CHECK(*convolved.state_bytes == *plain.state_bytes + 3 * 8 * 4);
}

TEST_CASE("a token writes and reads a matrix state once, or twice with the delta rule", "[costs]") {
  const auto operations_of = [](const std::string& mixer) {
    const auto model =
        "{kind: transformer, layers: 1, heads: 2, width: 8, context: 5, mixer: {kind: " + mixer + ", convolution: 0}}";
    return mixer_figures(default_experiment({"model=" + model}).config).value().costs.operations_per_token;
  };
  const double matrix = 8 * 8, state = 2 * 4 * 4;
  CHECK(operations_of("retention") == 2 * (5 * matrix + 2 * state));
  CHECK(operations_of("delta_net") == 2 * (4 * matrix + 8 * 2 + 4 * state));
}

}  // namespace metaformer::test_model_costs
