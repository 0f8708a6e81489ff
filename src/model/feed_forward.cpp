#include "model/feed_forward.h"

#include "ops/activation.h"
#include "ops/recompute.h"

namespace metaformer {

FeedForwardImpl::FeedForwardImpl(const TransformerConfig& config)
    : config_(config.feed_forward),
      up_(register_module("up", Linear(config.width, config.up_width(), config.bias, Init::normal(),
                                       /*hidden_matrices=*/config.up_width() / config.hidden_width()))),
      down_(register_module("down", Linear(config.hidden_width(), config.width, config.bias,
                                           Init::normal(branch_output_std(config.layers))))) {}

static torch::Tensor feed(const MlpConfig& config, Linear& up, Linear& down, const torch::Tensor& x_bcd) {
  const auto y_bcd = down(activate(config.activation, up(x_bcd)));
  return config.output_activation ? activate(config.activation, y_bcd) : y_bcd;
}

static torch::Tensor feed(const GatedConfig& config, Linear& up, Linear& down, const torch::Tensor& x_bcd) {
  return down(gate(config.activation, up(x_bcd)));
}

torch::Tensor FeedForwardImpl::forward(const torch::Tensor& x_bcd) {
  const auto feed_rows = [this](const torch::Tensor& x) {
    return std::visit([&](const auto& config) { return feed(config, up_, down_, x); }, config_);
  };
  if (chunks_of(config_) == 1) return feed_rows(x_bcd);
  const auto y_rd = recomputed_in_chunks(feed_rows, x_bcd.flatten(0, 1), parameters(), chunks_of(config_));
  return y_rd.view_as(x_bcd);
}

}  // namespace metaformer
