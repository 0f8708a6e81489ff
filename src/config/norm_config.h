#pragma once
// The normalisation of a block's branches.

#include <array>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

enum class NormPosition { pre, post };
template <>
struct EnumNames<NormPosition> {
  static constexpr std::array<std::string_view, 2> values = {"pre", "post"};
};

struct LayerNormConfig {
  static constexpr std::string_view kind = "layer_norm";
  static constexpr std::string_view summary = "mean 0 and variance 1 over the features of a token (Ba et al. 2016)";
  NormPosition position = NormPosition::pre;
  bool final = true;
};

using NormConfig = std::variant<LayerNormConfig>;

// After the last block: what post-norm has already.
inline bool has_final_norm(const NormConfig& norm) {
  return std::visit([](const auto& options) { return options.position == NormPosition::pre && options.final; }, norm);
}

template <class Visitor>
void visit(Visitor& field, LayerNormConfig& c) {
  field("position", c.position, "pre: x + branch(norm(x)), a final norm; post: norm(x + branch(x)) (2017)");
  field("final", c.final, "pre-norm: a norm after the last block");
}

}  // namespace metaformer
