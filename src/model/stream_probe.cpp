#include "model/stream_probe.h"

#include <utility>

namespace metaformer {

namespace {

// The points of every layer. Those of a source exist only in decoders; otherwise their keys are absent.
struct LayerPoint {
  StreamPoint point;
  const char* key;
  std::vector<double> DepthNorms::*norms;
  bool of_source = false;
};
constexpr LayerPoint layer_points[] = {
    {StreamPoint::mixer_input, "mixer_input", &DepthNorms::mixer_input},
    {StreamPoint::mixer_branch, "mixer_branch", &DepthNorms::mixer_branch},
    {StreamPoint::after_mixer, "after_mixer", &DepthNorms::after_mixer},
    {StreamPoint::cross_branch, "cross_branch", &DepthNorms::cross_branch, true},
    {StreamPoint::after_cross, "after_cross", &DepthNorms::after_cross, true},
    {StreamPoint::feed_forward_branch, "feed_forward_branch", &DepthNorms::feed_forward_branch},
    {StreamPoint::after_feed_forward, "after_feed_forward", &DepthNorms::after_feed_forward},
};

}  // namespace

void DepthNorms::add(StreamPoint point, double norm) {
  if (point == StreamPoint::embedding) embedding = norm;
  if (point == StreamPoint::output) output = norm;
  for (const auto& of_layer : layer_points)
    if (of_layer.point == point) (this->*of_layer.norms).push_back(norm);
}

nlohmann::ordered_json to_json(const DepthNorms& norms) {
  nlohmann::ordered_json json = {{"embedding", norms.embedding}};
  for (const auto& of_layer : layer_points)
    if (!of_layer.of_source || !(norms.*of_layer.norms).empty()) json[of_layer.key] = norms.*of_layer.norms;
  json["output"] = norms.output;
  return json;
}

void StreamProbe::stream(StreamPoint point, const torch::Tensor& x_bcd) {
  if (point == StreamPoint::embedding) {
    stacks_.emplace_back();
    // The stream has gradients also if embeddings are frozen.
    if (torch::GradMode::is_enabled() && !x_bcd.requires_grad()) x_bcd.requires_grad_();
  }
  auto& stack = stacks_.back();
  if (point == StreamPoint::mixer_branch) stack.own.push_back(std::exchange(latest_, {}));
  if (point == StreamPoint::cross_branch) stack.cross.push_back(std::exchange(latest_, {}));
  stack.stream.push_back({.point = point, .x_bcd = x_bcd});
}

void StreamProbe::attended(const torch::Tensor& score_bnce, const torch::Tensor& weight_bnce,
                           const torch::Tensor& visible_bce) {
  latest_.score_bnce = score_bnce.detach();
  latest_.weight_bnce = weight_bnce.detach();
  latest_.visible_bce = visible_bce;
}

// A classifier may have put a class token before the tokens.
static double mean_norm(const torch::Tensor& x_bcd, torch::Tensor segments_bc) {
  const auto norm_bc = x_bcd.detach().to(torch::kDouble).norm(2, 2);
  if (!segments_bc.defined()) return norm_bc.mean().item<double>();
  segments_bc = torch::constant_pad_nd(segments_bc, {norm_bc.size(1) - segments_bc.size(1), 0}, 0);
  return norm_bc.masked_select(segments_bc >= 0).mean().item<double>();
}

DepthNorms token_norms(const StreamProbe::Stack& stack, const torch::Tensor& segments_bc) {
  DepthNorms norms;
  for (const auto& [point, x_bcd] : stack.stream) norms.add(point, mean_norm(x_bcd, segments_bc));
  return norms;
}

DepthNorms gradient_norms(const StreamProbe::Stack& stack, const std::vector<torch::Tensor>& gradients) {
  DepthNorms norms;
  for (std::size_t i = 0; i < stack.stream.size(); ++i)
    norms.add(stack.stream[i].point,
              gradients.at(i).defined() ? gradients[i].to(torch::kDouble).norm().item<double>() : 0);
  return norms;
}

std::vector<double> to_vector(const torch::Tensor& values) {
  const auto list = values.to(torch::kCPU, torch::kDouble).contiguous();
  return {list.const_data_ptr<double>(), list.const_data_ptr<double>() + list.numel()};
}

AttentionMeasures measure_attention(const StreamProbe::Scores& seen) {
  const auto score_bnce = seen.score_bnce.to(torch::kDouble), given_bnce = seen.weight_bnce.to(torch::kDouble);
  // Sigmoids, and softmax with sinks, do not add up to 1.
  const auto weight_bnce = given_bnce / given_bnce.sum(3, /*keepdim=*/true).clamp_min(1e-30);
  const auto visible_bnce = seen.visible_bce.defined() ? seen.visible_bce.unsqueeze(1).expand_as(score_bnce)
                                                       : torch::ones_like(score_bnce, torch::kBool);
  const auto keys_bnc = visible_bnce.sum(3);
  const auto counts_bnc = keys_bnc > 1;
  const auto entropy_bnc =
      -torch::xlogy(weight_bnce, weight_bnce).sum(3) / keys_bnc.clamp_min(2).to(torch::kDouble).log();
  const auto entropy_n = (entropy_bnc * counts_bnc).sum(2).sum(0) / counts_bnc.sum(2).sum(0);
  const auto visible_scores = [&](const torch::Tensor& x_bnce) { return torch::where(visible_bnce, x_bnce, 0.0); };
  const auto count_n11 = visible_bnce.sum({0, 2, 3}).view({-1, 1, 1});
  const auto mean_n11 = visible_scores(score_bnce).sum({0, 2, 3}).view({-1, 1, 1}) / count_n11;
  const auto variance_n = visible_scores((score_bnce - mean_n11).square()).sum({0, 2, 3}) / count_n11.flatten();
  return {.entropy = to_vector(entropy_n.clamp(0, 1)),
          .score_std = to_vector(variance_n.sqrt()),
          .score_max = visible_scores(score_bnce.abs()).max().item<double>()};
}

}  // namespace metaformer
