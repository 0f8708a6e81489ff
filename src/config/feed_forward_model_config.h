#pragma once
// The feed-forward language model.

#include <cstdint>
#include <string_view>

#include "config/embedding_config.h"
#include "config/model_fields.h"

namespace metaformer {

// y = b + U tanh(d + H x), x the embeddings of the last `window` tokens, side by side.
struct FeedForwardModelConfig {
  static constexpr std::string_view kind = "feed_forward";
  static constexpr std::string_view summary = "one hidden layer over the last tokens (Bengio et al. 2003)";
  std::int64_t window = 8;
  std::int64_t width = 64;
  std::int64_t hidden = 256;
  std::int64_t context = 64;
  double dropout = 0.0;
  EmbeddingConfig embedding = {.std = 0.1, .tie = false};

  std::int64_t inputs() const { return window * width; }
};

template <class Visitor>
void visit(Visitor& field, FeedForwardModelConfig& c) {
  field("window", c.window, between(1, 1 << 16), "tokens that the next one is predicted from");
  field("width", c.width, between(1, 65536), "width of embeddings");
  field("hidden", c.hidden, between(1, 1 << 20), "units of the hidden layer");
  visit_context(field, c.context);
  field("dropout", c.dropout, from_to_below(0, 1), "on embeddings and on the hidden layer");
  field("embedding", c.embedding, "embeddings of tokens");
}

}  // namespace metaformer
