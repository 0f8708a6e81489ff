#include "tasks/linear_classifier.h"

#include <linear.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/signals.h"

namespace metaformer {

namespace {

// The features that training texts have, renumbered 1, 2, ... in order of their first text; 0: none has it.
struct Columns {
  std::vector<std::int32_t> of_bucket;
  std::vector<std::uint32_t> bucket;  // by column - 1
};

Columns number_columns(const std::vector<LabelledFeatures>& texts, std::int64_t buckets) {
  Columns columns{.of_bucket = std::vector<std::int32_t>(static_cast<std::size_t>(buckets)), .bucket = {}};
  for (const auto& text : texts) {
    for (const auto feature : text.features) {
      if (columns.of_bucket[feature] != 0) continue;
      columns.bucket.push_back(feature);
      columns.of_bucket[feature] = static_cast<std::int32_t>(columns.bucket.size());
    }
  }
  return columns;
}

// The texts as liblinear wants them: a row of (column, value) each, the bias as its last column, ended by column -1.
class Problem {
 public:
  Problem(const std::vector<LabelledFeatures>& texts, const Columns& columns)
      : columns_(columns), bias_column_(static_cast<int>(columns.bucket.size()) + 1) {
    std::size_t size = 0;
    for (const auto& text : texts) size += text.features.size() + 2;
    nodes_.reserve(size);
    std::vector<std::size_t> starts;
    for (const auto& text : texts) {
      starts.push_back(nodes_.size());
      for (const auto feature : text.features) nodes_.push_back({columns.of_bucket[feature], 1});
      nodes_.push_back({bias_column_, 1});
      nodes_.push_back({-1, 0});
    }
    for (const auto start : starts) rows_.push_back(&nodes_[start]);
  }

  void set_values(const std::vector<double>& of_bucket) {
    for (auto& node : nodes_)
      if (node.index > 0 && node.index < bias_column_)
        node.value = of_bucket[columns_.bucket[static_cast<std::size_t>(node.index - 1)]];
  }

  // The weight of each column, the bias last; `targets` are 1 and -1, both there.
  std::vector<double> solve(std::vector<double> targets, double cost) {
    const problem described{
        .l = static_cast<int>(rows_.size()), .n = bias_column_, .y = targets.data(), .x = rows_.data(), .bias = 1};
    parameter settings{};
    settings.solver_type =
        L2R_LR_DUAL;  // several times as fast as the primal, without arithmetic of whatever BLAS there is
    settings.eps = 0.01;
    settings.C = cost;
    set_print_string_function([](const char*) {});
    std::srand(1);  // its order of texts comes from rand(), which nothing else here uses
    const auto destroy = [](model* trained) { free_and_destroy_model(&trained); };
    const std::unique_ptr<model, decltype(destroy)> trained(::train(&described, &settings), destroy);
    // Its weights are for whichever label comes first.
    const double sign = trained->label[0];
    std::vector<double> weights(trained->w, trained->w + bias_column_);
    for (auto& weight : weights) weight *= sign;
    return weights;
  }

 private:
  const Columns& columns_;
  int bias_column_;
  std::vector<feature_node> nodes_;
  std::vector<feature_node*> rows_;
};

// The log odds of one class against the rest, by bucket.
struct Odds {
  std::vector<double> weights;
  double bias = 0;
};

Odds fit_class(const std::vector<LabelledFeatures>& texts, std::int64_t label, const Columns& columns, Problem& problem,
               const LinearConfig& config) {
  const auto buckets = static_cast<std::size_t>(config.buckets);
  std::vector<double> targets;
  for (const auto& text : texts) targets.push_back(text.label == label ? 1 : -1);
  const auto members = static_cast<double>(std::count(targets.begin(), targets.end(), 1.0));
  const auto others = static_cast<double>(targets.size()) - members;
  Odds odds{.weights = std::vector<double>(buckets)};
  if (members == 0 || others == 0) {
    odds.bias = std::log((members + 1) / (others + 1));
    return odds;
  }
  const auto values = config.naive_bayes ? log_count_ratios(texts, label, buckets) : std::vector<double>(buckets, 1.0);
  problem.set_values(values);
  const auto solution = problem.solve(std::move(targets), config.cost);
  for (std::size_t column = 0; column < columns.bucket.size(); ++column) {
    const auto bucket = columns.bucket[column];
    odds.weights[bucket] = solution[column] * values[bucket];
  }
  odds.bias = solution.back();
  return odds;
}

void set_class(LinearWeights& result, std::int64_t label, const Odds& odds, double factor) {
  const auto classes = static_cast<std::size_t>(result.classes), column = static_cast<std::size_t>(label);
  for (std::size_t bucket = 0; bucket < odds.weights.size(); ++bucket)
    result.weights[bucket * classes + column] = static_cast<float>(factor * odds.weights[bucket]);
  result.bias[column] = static_cast<float>(factor * odds.bias);
}

// liblinear numbers rows and columns by int.
void require_room(const std::vector<LabelledFeatures>& texts) {
  if (texts.size() >= static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw Error(ExitCode::data, "the linear classifier can be trained on 2^31 - 2 texts at most");
}

}  // namespace

std::vector<double> LinearWeights::logits(const std::vector<std::uint32_t>& features) const {
  std::vector<double> sums(bias.begin(), bias.end());
  for (const auto feature : features)
    for (std::size_t label = 0; label < sums.size(); ++label) sums[label] += weights[feature * sums.size() + label];
  return sums;
}

LinearWeights fit_linear_classifier(const std::vector<LabelledFeatures>& texts, std::int64_t classes,
                                    const LinearConfig& config) {
  require_room(texts);
  LinearWeights result{.classes = classes,
                       .weights = std::vector<float>(static_cast<std::size_t>(config.buckets * classes)),
                       .bias = std::vector<float>(static_cast<std::size_t>(classes))};
  const auto columns = number_columns(texts, config.buckets);
  Problem problem(texts, columns);
  if (classes == 2) {
    const auto odds = fit_class(texts, 1, columns, problem, config);
    set_class(result, 0, odds, -0.5);
    set_class(result, 1, odds, 0.5);
    return result;
  }
  for (std::int64_t label = 0; label < classes; ++label) {
    throw_if_stopped();
    set_class(result, label, fit_class(texts, label, columns, problem, config), 1);
  }
  return result;
}

std::vector<std::vector<std::uint32_t>> row_features(const Batch& batch, const LinearConfig& config) {
  const auto ids_bc = batch.ids_bc.to(torch::kCPU).contiguous();
  const auto segments_bc =
      batch.segments_bc.defined() ? batch.segments_bc.to(torch::kCPU).contiguous() : torch::zeros_like(ids_bc);
  const auto length = ids_bc.size(1);
  std::vector<std::vector<std::uint32_t>> features;
  for (std::int64_t row = 0; row < ids_bc.size(0); ++row) {
    const auto* ids = ids_bc.data_ptr<std::int64_t>() + row * length;
    const auto* segments = segments_bc.data_ptr<std::int64_t>() + row * length;
    std::vector<std::int32_t> real;
    for (std::int64_t i = 0; i < length; ++i)
      if (segments[i] >= 0) real.push_back(static_cast<std::int32_t>(ids[i]));
    features.push_back(ngram_features(real, config));
  }
  return features;
}

LinearModel::LinearModel(const LinearConfig& config, const LinearWeights& weights)
    : config_(config),
      weight_fv_(torch::tensor(weights.weights, torch::kFloat).view({-1, weights.classes})),
      bias_v_(torch::tensor(weights.bias, torch::kFloat)) {}

LinearModel::LinearModel(const LinearConfig& config, std::int64_t classes)
    : config_(config), weight_fv_(torch::empty({config.buckets, classes})), bias_v_(torch::empty(classes)) {}

void LinearModel::to(torch::Device device) {
  weight_fv_ = weight_fv_.to(device);
  bias_v_ = bias_v_.to(device);
}

torch::Tensor LinearModel::logits(const Batch& batch) const {
  std::vector<torch::Tensor> sums;
  // Row by row: embedding_bag starts all threads for the few additions of a row, which then wait for each other.
  for (const auto& row : row_features(batch, config_)) {
    const std::vector<std::int64_t> features(row.begin(), row.end());
    const auto features_f = torch::tensor(at::ArrayRef<std::int64_t>(features), torch::kLong);
    sums.push_back(weight_fv_.index_select(0, features_f.to(weight_fv_.device())).sum(0));
  }
  return torch::stack(sums) + bias_v_;
}

}  // namespace metaformer
