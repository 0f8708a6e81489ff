#pragma once
// Norms of the residual stream and of what is added to it, by depth.

#include <nlohmann/json.hpp>
#include <vector>

#include "ops/probe.h"

namespace metaformer {

// Of the stream at every StreamPoint; vectors have an entry for each layer.
struct DepthNorms {
  double embedding = 0;
  std::vector<double> mixer_branch, after_mixer;
  std::vector<double> cross_branch, after_cross;  // empty where no block sees a source
  std::vector<double> feed_forward_branch, after_feed_forward;
  double output = 0;

  void add(StreamPoint point, double norm);
};

// The keys are the names above; of a source only where there is one.
nlohmann::ordered_json to_json(const DepthNorms& norms);

}  // namespace metaformer
