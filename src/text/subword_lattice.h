#pragma once
// All ways to cut a word into pieces, and drawing one of them: forward filtering, backward sampling (Kudo 2018, 3.2).

#include <cstdint>
#include <vector>

namespace metaformer {

class SubwordLattice {
 public:
  struct Edge {
    std::int32_t id;
    std::int32_t begin;  // the node that the piece starts at
    double score;        // logarithm of the piece's probability
  };

  // Goes on by a character: from the last node so far to a new one. `edges` are the pieces that end at the new node.
  void add_node(const std::vector<Edge>& edges);

  // A way through all nodes, appended to `ids`: probabilities are those of the pieces, multiplied, to the power
  // `alpha`, divided by their sum over all ways. `uniform` in [0, 1) decides. There must be a way.
  void draw(double alpha, double uniform, std::vector<std::int32_t>& ids);

 private:
  struct WeighedEdge {
    Edge edge;
    double share;  // of this and the edges before it that end at the same node
  };

  void weigh(double alpha);

  std::vector<WeighedEdge> edges_;            // by the node they end at
  std::vector<std::int32_t> first_ = {0, 0};  // of edges_, by node; the start has none
  double alpha_ = -1;                         // that the shares are for
};

}  // namespace metaformer
