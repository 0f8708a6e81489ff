#pragma once
// The options of average pooling, and what it costs. No torch.

#include "base/text.h"
#include "config/mixer_config.h"

namespace metaformer {

// Width of a pooling window in tokens, or everything visible.
struct PoolingWindow {
  std::int64_t tokens = 3;  // 0 stands for `all`
  bool all() const { return tokens == 0; }
};

template <>
struct TextForm<PoolingWindow> {
  static constexpr const char* expected = "a number of tokens (at least 1) or 'all'";
  static constexpr const char* type = "integer, at least 1, or all";
  static std::string write(const PoolingWindow& window) { return window.all() ? "all" : std::to_string(window.tokens); }
  static bool read(const std::string& text, PoolingWindow& window) {
    window.tokens = 0;
    return text == "all" || (parse_whole_number(text, window.tokens) == WholeNumber::valid && window.tokens >= 1);
  }
};

struct AveragePoolingOptions {
  static constexpr std::string_view kind = "average_pooling";
  static constexpr std::string_view summary = "mean over a window of visible tokens, minus the token (PoolFormer)";
  PoolingWindow window;
  Backend backend = Backend::automatic;

  std::vector<Backend> backends() const { return {Backend::composed, Backend::reference}; }

  // No products of matrices; the reference has a weight for every pair.
  MixerCost cost(const MixerShape& shape, const MixerLoad&) const {
    return {.activations = shape.width, .keeps_pairs = backend == Backend::reference};
  }
};

template <class Visitor>
void visit(Visitor& field, AveragePoolingOptions& o) {
  field("window", o.window, "tokens in the window, counting the token itself; or all");
  field("backend", o.backend, backend_help);
}

class Mixer;
std::shared_ptr<Mixer> make(const AveragePoolingOptions& options, const MixerShape& shape);

}  // namespace metaformer
