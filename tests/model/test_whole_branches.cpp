// Branches of a block that are one node of the graph, against the same branches part by part.

#include "model/block.h"
#include "model/small_models.h"
#include "ops/autocast.h"
#include "support/any_block.h"
#include "support/any_mixer.h"
#include "support/graph_nodes.h"

namespace metaformer {

namespace {

constexpr std::int64_t width = 12;

TransformerConfig config_of(const NormConfig& norm, const FeedForwardConfig& feed_forward) {
  auto config = small_transformer(IdentityOptions{}, width);  // only the block's own parts count
  config.norm = norm;
  config.feed_forward = feed_forward;
  return config;
}

Block random_block(const TransformerConfig& config) {
  torch::manual_seed(5);
  Block block(config);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : block->parameters()) parameter.normal_(0.1, 0.3);
  return block;
}

// y, dx, and the gradient of every parameter; the draws of dropout are those of a training pass.
std::vector<torch::Tensor> outputs_and_gradients(Block& block, const torch::Tensor& x_bcd, Precision precision,
                                                 Probe* probe, std::uint64_t& draws) {
  Pass pass{.training = true, .random = RandomStream(torch::tensor(7, torch::kLong)), .probe = probe};
  const auto leaf_bcd = x_bcd.detach().clone().requires_grad_(true);
  torch::Tensor y_bcd;
  {
    const AutocastScope autocast(precision, torch::kCPU);
    y_bcd = block->forward(leaf_bcd, {self_visibility(/*causal=*/true, torch::Tensor())}, pass);
  }
  torch::manual_seed(6);
  std::vector<torch::Tensor> inputs = block->parameters();
  inputs.push_back(leaf_bcd);
  auto found = torch::autograd::grad({y_bcd}, inputs, {torch::randn_like(y_bcd)}, {}, false, /*allow_unused=*/true);
  found.push_back(y_bcd.detach());
  draws = pass.random.place();
  return found;
}

bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !torch::equal(a[i], b[i]))) return false;
  return a.size() == b.size();
}

bool is_same_part_by_part(const TransformerConfig& config, Precision precision,
                          const std::vector<std::int64_t>& sizes = {3, 7, width}) {
  auto block = random_block(config);
  torch::manual_seed(4);
  const auto x_bcd = torch::randn(sizes);
  StreamWatcher probe;
  std::uint64_t draws = 0, draws_by_parts = 0;
  const auto whole = outputs_and_gradients(block, x_bcd, precision, nullptr, draws);
  const auto by_parts = outputs_and_gradients(block, x_bcd, precision, &probe, draws_by_parts);
  CHECK(draws == draws_by_parts);
  return equal(whole, by_parts);
}

std::int64_t nodes_of(const TransformerConfig& config) {
  auto block = random_block(config);
  Pass pass{.training = true, .random = RandomStream(torch::tensor(7, torch::kLong))};
  const auto y_bcd = block->forward(torch::randn({2, 3, width}), {self_visibility(true, torch::Tensor())}, pass);
  return std::ssize(names_of_nodes(y_bcd));
}

}  // namespace

TEST_CASE("a whole feed-forward branch has the bytes of its parts, forward and backward", "[whole]") {
  auto config = config_of(any_norm(), any_feed_forward());
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  config.bias = GENERATE(true, false);
  config.dropout = GENERATE(0.0, 0.3);
  CAPTURE(kind_of(config.norm), kind_of(config.feed_forward), precision, config.bias, config.dropout);
  CHECK(is_same_part_by_part(config, precision));
}

TEST_CASE("a mixer's branch that ends in one node has the bytes of its parts, forward and backward", "[whole]") {
  auto config = config_of(LayerNormConfig{}, MlpConfig{});
  config.mixer = any_mixer();
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  config.bias = GENERATE(true, false);
  config.dropout = GENERATE(0.0, 0.3);
  config.heads = 3;
  if (config.mixer->problem(config.mixer_shape())) return;
  CAPTURE(kind_of(config.mixer), precision, config.bias, config.dropout);
  CHECK(is_same_part_by_part(config, precision));
}

TEST_CASE("a block of scaled dot product attention is five nodes", "[whole]") {
  auto config = config_of(LayerNormConfig{}, MlpConfig{});
  config.mixer = ScaledDotProductOptions{};
  config.dropout = 0.3;
  const auto leaves = std::ssize(random_block(config)->parameters());
  CHECK(nodes_of(config) == 5 + leaves);  // norm, projection, attention, its end, the feed-forward branch
}

TEST_CASE("a whole feed-forward branch of one token, and of many rows", "[whole]") {
  const auto config = config_of(LayerNormConfig{}, MlpConfig{});
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  CHECK(is_same_part_by_part(config, precision, {1, 1, width}));
  CHECK(is_same_part_by_part(config, precision, {40, 70, width}));
}

TEST_CASE("a pre-norm branch with its residual connection is one node, others are as many as they have parts",
          "[whole]") {
  auto config = config_of(any_norm(), any_feed_forward());
  config.residual = GENERATE(true, false);
  CAPTURE(kind_of(config.norm), kind_of(config.feed_forward), config.residual, feed_forward_obstacle(config));
  const auto leaves = std::ssize(random_block(config)->parameters());
  const auto mixer_nodes = 6;  // at most: the mixer's norm, the identity, a sum, with their leaves counted above
  if (feed_forward_obstacle(config).empty())
    CHECK(nodes_of(config) <= 1 + leaves + mixer_nodes);
  else
    CHECK(nodes_of(config) >= 4 + leaves);
}

TEST_CASE("what keeps a branch from being whole is named", "[whole]") {
  auto config = config_of(LayerNormConfig{}, MlpConfig{});
  CHECK(feed_forward_obstacle(config).empty());
  config.feed_forward = MlpConfig{.output_activation = true};
  CHECK(feed_forward_obstacle(config) == "model.feed_forward.output_activation is true");
  config.residual = false;
  CHECK(feed_forward_obstacle(config) == "model.residual is false");
  config.norm = RmsNormConfig{.position = NormPosition::post};
  CHECK(feed_forward_obstacle(config) == "model.norm.position is not pre");
}

TEST_CASE("without gradients a block is computed as before", "[whole]") {
  const auto config = config_of(any_norm(), any_feed_forward());
  auto block = random_block(config);
  const torch::NoGradGuard no_grad;
  Pass pass, observed;
  StreamWatcher probe;
  observed.probe = &probe;
  const auto x_bcd = torch::randn({2, 3, width});
  const auto visibility = self_visibility(true, torch::Tensor());
  CHECK(torch::equal(block->forward(x_bcd, {visibility}, pass), block->forward(x_bcd, {visibility}, observed)));
}

}  // namespace metaformer
