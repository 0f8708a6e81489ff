#pragma once
// Every norm, activation and feed-forward branch, for tests.

#include "config/model_config.h"
#include "support/torch_catch.h"

namespace metaformer {

// Every kind at every position, with an epsilon other than the default.
inline std::vector<NormConfig> every_norm() {
  std::vector<NormConfig> all;
  for (const auto& kind : kinds_of<NormConfig>())
    for (const auto position : {NormPosition::pre, NormPosition::post, NormPosition::both}) {
      all.push_back(*make_kind<NormConfig>(kind));
      std::visit([&](auto& options) { options.position = position, options.epsilon = 1e-3; }, all.back());
    }
  return all;
}

inline std::vector<ActivationConfig> every_activation() {
  std::vector<ActivationConfig> all;
  for (const auto& kind : kinds_of<ActivationConfig>()) all.push_back(*make_kind<ActivationConfig>(kind));
  all.emplace_back(SiluConfig{.beta = 1.7});
  return all;
}

inline std::vector<FeedForwardConfig> every_feed_forward() {
  std::vector<FeedForwardConfig> all;
  for (const auto& f : every_activation()) {
    all.emplace_back(MlpConfig{.activation = f, .ratio = 2.6});
    all.emplace_back(MlpConfig{.activation = f, .ratio = 1.5, .output_activation = true});
    all.emplace_back(GatedConfig{.activation = f});
  }
  return all;
}

// One of them; the test case runs once with each.
inline NormConfig any_norm() {
  static const auto all = every_norm();
  return all[GENERATE_COPY(range(std::size_t{0}, all.size()))];
}
inline ActivationConfig any_activation() {
  static const auto all = every_activation();
  return all[GENERATE_COPY(range(std::size_t{0}, all.size()))];
}
inline FeedForwardConfig any_feed_forward() {
  static const auto all = every_feed_forward();
  return all[GENERATE_COPY(range(std::size_t{0}, all.size()))];
}

}  // namespace metaformer
