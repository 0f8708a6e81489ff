#include "cli/inspection_text.h"

#include <fmt/format.h>

#include "cli/output.h"

namespace metaformer {

namespace {

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double mean_of(const LayerInspection& layer, double MetricAxioms::*value) {
  std::vector<double> values;
  for (const auto& axioms : layer.axioms) values.push_back(axioms.*value);
  return mean_of(values);
}

std::string verdicts_of(const LayerInspection& layer) {
  std::string text;
  for (const auto& axioms : layer.axioms) {
    const auto verdict = to_string(axioms.verdict);
    if (text.find(verdict) == std::string::npos) text += (text.empty() ? "" : ", ") + std::string(verdict);
  }
  return text;
}

void print_ranks(const TextInspection& inspection) {
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& ranks = inspection.layers[i].distance_rank_correlation;
    if (ranks.empty()) continue;
    print_lines(fmt::format("layer {}: rank correlation of distances between digits with |i - j|, by head:", i));
    for (const double value : ranks) print_lines(fmt::format(" {:.2f}", value));
    print_lines("\n");
  }
}

void print_layers(const TextInspection& inspection) {
  if (inspection.layers.empty()) return print_lines("the model has no blocks\n");
  if (!inspection.layers.front().has_scores()) {
    print_lines(fmt::format("mixer {}: it has no scores\n", inspection.mixer));
    return;
  }
  print_lines(fmt::format("mixer {}; means over the heads, in percent where they are fractions\n", inspection.mixer));
  if (inspection.part == InspectedPart::cross) {
    print_lines(fmt::format("{:<7}{:>14}\n", "layer", "scores < 0"));
    for (std::size_t i = 0; i < inspection.layers.size(); ++i)
      print_lines(fmt::format("{:<7}{:>14.1f}\n", i, 100 * mean_of(inspection.layers[i].negative_scores)));
    return;
  }
  print_lines(fmt::format("{:<7}{:>16}{:>14}{:>14}{:>18}{:>20}  {}\n", "layer", "mean distance", "scores < 0",
                          "eigenvalues<0", "pairs, square < 0", "triangles violated", "form"));
  for (std::size_t i = 0; i < inspection.layers.size(); ++i) {
    const auto& layer = inspection.layers[i];
    print_lines(fmt::format("{:<7}{:>16.2f}{:>14.1f}{:>14.1f}{:>18.1f}{:>20.1f}  {}\n", i,
                            mean_of(layer.mean_attention_distance), 100 * mean_of(layer.negative_scores),
                            100 * mean_of(layer, &MetricAxioms::negative_eigenvalues),
                            100 * mean_of(layer, &MetricAxioms::negative_pairs),
                            100 * mean_of(layer, &MetricAxioms::violated_triples), verdicts_of(layer)));
  }
  print_ranks(inspection);
}

void print_norms(const DepthNorms& norms, const char* title) {
  print_lines(
      fmt::format("{}\n{:<7}{:>12}{:>12}{:>14}{:>12}\n", title, "layer", "mixer", "stream", "feed-forward", "stream"));
  print_lines(fmt::format("{:<7}{:>12}{:>12.4g}\n", "", "", norms.embedding));
  for (std::size_t i = 0; i < norms.after_mixer.size(); ++i)
    print_lines(fmt::format("{:<7}{:>12.4g}{:>12.4g}{:>14.4g}{:>12.4g}\n", i, norms.mixer_branch[i],
                            norms.after_mixer[i], norms.feed_forward_branch[i], norms.after_feed_forward[i]));
}

}  // namespace

void print_text(const TextInspection& inspection, const std::filesystem::path& checkpoint) {
  const auto title = inspection.part == InspectedPart::cross
                         ? fmt::format("cross: {} tokens that see {}", inspection.tokens.size(), inspection.keys.size())
                     : inspection.part == InspectedPart::whole
                         ? fmt::format("{} tokens", inspection.tokens.size())
                         : fmt::format("{}: {} tokens", to_string(inspection.part), inspection.tokens.size());
  print_lines(fmt::format("{} of {}\n", title, checkpoint.string()));
  print_layers(inspection);
  if (inspection.part != InspectedPart::cross)
    print_norms(inspection.norms, "norm of a token's vector, mean over the text");
}

void print_split(const SplitInspection& inspection) {
  print_norms(inspection.gradients.stream, "norm of the gradient with respect to the stream");
  if (const auto& losses = inspection.loss_by_position; !losses.empty())
    print_lines(fmt::format("loss by position: {:.4f} at {}, {:.4f} at {}\n", losses.front().loss,
                            losses.front().position, losses.back().loss, losses.back().position));
  if (inspection.effective_context)
    print_lines(fmt::format("effective context: {} of {} tokens (loss within 1%)\n", *inspection.effective_context,
                            inspection.loss_by_context.back().tokens));
}

}  // namespace metaformer
