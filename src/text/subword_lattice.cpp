#include "text/subword_lattice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace metaformer {

void SubwordLattice::add_node(const std::vector<Edge>& edges) {
  for (const auto& edge : edges) edges_.push_back({edge, 0});
  first_.push_back(static_cast<std::int32_t>(edges_.size()));
}

void SubwordLattice::weigh(double alpha) {
  constexpr double never = -std::numeric_limits<double>::infinity();
  alpha_ = alpha;
  std::vector<double> forward = {0};  // by node: logarithm of the sum over all paths to it
  for (std::size_t node = 1; node + 1 < first_.size(); ++node) {
    const auto begin = edges_.begin() + first_[node], end = edges_.begin() + first_[node + 1];
    const auto weight = [&](const Edge& edge) {
      return forward[static_cast<std::size_t>(edge.begin)] + alpha * edge.score;
    };
    double greatest = never, sum = 0;
    for (auto at = begin; at != end; ++at) greatest = std::max(greatest, weight(at->edge));
    if (greatest != never)
      for (auto at = begin; at != end; ++at) at->cumulative = sum += std::exp(weight(at->edge) - greatest);
    for (auto at = begin; at != end; ++at) at->cumulative /= sum;
    forward.push_back(greatest + std::log(sum));
  }
}

void SubwordLattice::draw(double alpha, double uniform, std::vector<std::int32_t>& ids) {
  if (alpha != alpha_) weigh(alpha);
  const auto before = ids.size();
  for (auto node = first_.size() - 2; node > 0;) {
    const auto begin = edges_.begin() + first_[node], end = edges_.begin() + first_[node + 1];
    auto drawn = std::upper_bound(begin, end, uniform, [](double u, const auto& edge) { return u < edge.cumulative; });
    if (drawn == end) --drawn;
    // The number's place within the edge's interval is uniform again.
    const double below = drawn == begin ? 0 : std::prev(drawn)->cumulative;
    uniform = std::clamp((uniform - below) / (drawn->cumulative - below), 0.0, 1.0);
    ids.push_back(drawn->edge.id);
    node = static_cast<std::size_t>(drawn->edge.begin);
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
}

}  // namespace metaformer
