#pragma once
// All segmentations of a word into pieces, and a random one: forward filtering, backward sampling (Kudo 2018, 3.2).

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

  // Adds a character, and with it a new node. `edges` are the pieces that end at the new node.
  void add_node(const std::vector<Edge>& edges);

  // Appends a path through all nodes to `ids`. Its probability is the product of those of its pieces to the power
  // `alpha`, divided by the sum over all paths. `uniform` in [0, 1) decides. There must be a path.
  void draw(double alpha, double uniform, std::vector<std::int32_t>& ids);

 private:
  struct WeighedEdge {
    Edge edge;
    double cumulative;  // probability of this and the edges before it that end at the same node
  };

  void weigh(double alpha);

  std::vector<WeighedEdge> edges_;            // by the node they end at
  std::vector<std::int32_t> first_ = {0, 0};  // of edges_, by node; the start has none
  double alpha_ = -1;                         // for which the probabilities were computed
};

}  // namespace metaformer
