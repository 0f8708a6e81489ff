#pragma once
// The task section of a classifier.

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "config/data_config.h"
#include "config/schema.h"

namespace metaformer {

enum class ClassWeights { none, balanced };
template <>
struct EnumNames<ClassWeights> {
  static constexpr std::array<std::string_view, 2> values = {"none", "balanced"};
};

// The metric of the validation split that chooses the best checkpoint.
enum class SelectionMetric { accuracy, loss, auc };
template <>
struct EnumNames<SelectionMetric> {
  static constexpr std::array<std::string_view, 3> values = {"accuracy", "loss", "auc"};
};

// Which tokens of a text that is longer than model.context are kept.
enum class Truncation { head, tail, head_and_tail };
template <>
struct EnumNames<Truncation> {
  static constexpr std::array<std::string_view, 3> values = {"head", "tail", "head_and_tail"};
};

struct HeadOptions {
  bool recalibrate = false;
};

struct MeanPooledHeadConfig : HeadOptions {
  static constexpr std::string_view kind = "mean_pooled";
  static constexpr std::string_view summary = "a norm and the logits of the mean over the tokens";
};

struct PerTokenMeanHeadConfig : HeadOptions {
  static constexpr std::string_view kind = "per_token_mean";
  static constexpr std::string_view summary = "the mean of the tokens' logits";
};

struct FirstTokenHeadConfig : HeadOptions {
  static constexpr std::string_view kind = "first_token";
  static constexpr std::string_view summary = "the logits of a class token in front of the text";
};

struct NoBagConfig {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "only the features of the last block";
};

struct NaiveBayesBagConfig {
  static constexpr std::string_view kind = "naive_bayes";
  static constexpr std::string_view summary =
      "a hidden layer over the n-grams that the text has, in any order, scaled by naive Bayes' log-count ratios "
      "(Johnson and Zhang 2015)";
  std::int64_t ngrams = 3;
  std::int64_t buckets = std::int64_t{1} << 21;
  std::int64_t units = 20;
};

using BagConfig = std::variant<NoBagConfig, NaiveBayesBagConfig>;

struct MaxPooledHeadConfig : HeadOptions {
  static constexpr std::string_view kind = "max_pooled";
  static constexpr std::string_view summary = "the logits of each feature's largest value among the tokens";
  double dropout = 0;
  bool response_norm = false;
  BagConfig bag;
};

using HeadConfig =
    std::variant<MeanPooledHeadConfig, PerTokenMeanHeadConfig, FirstTokenHeadConfig, MaxPooledHeadConfig>;

inline bool recalibrates(const HeadConfig& head) {
  return std::visit([](const auto& options) { return options.recalibrate; }, head);
}

struct ClassificationConfig {
  static constexpr std::string_view kind = "classification";
  static constexpr std::string_view summary = "the class of a text";
  double label_smoothing = 0;
  ClassWeights class_weights = ClassWeights::none;
  double token_removal = 0;
  double token_unknown = 0;
  std::int64_t bucketing = 1;
  Truncation truncation = Truncation::head;
  HeadConfig head;
  SelectionMetric selection_metric = SelectionMetric::accuracy;
  bool baselines = true;
  LabelledDataConfig data;  // the top-level section `data`
};

template <class Visitor>
void visit(Visitor& field, HeadOptions& o) {
  field("recalibrate", o.recalibrate,
        "before each evaluation, shift the logits to the values that minimise the training loss without noise and "
        "dropout");
}

template <class Visitor>
void visit(Visitor&, NoBagConfig&) {}

template <class Visitor>
void visit(Visitor& field, NaiveBayesBagConfig& c) {
  field("ngrams", c.ngrams, between(1, 5), "longest sequence of tokens in the bag");
  field("buckets", c.buckets, between(1, 1 << 26), "rows of the table that n-grams are hashed to");
  field("units", c.units, between(1, 65536), "hidden units, with ReLU");
}

template <class Visitor>
void visit(Visitor& field, MaxPooledHeadConfig& o) {
  visit(field, static_cast<HeadOptions&>(o));
  field("dropout", o.dropout, from_to_below(0, 1), "on what the logits are computed from");
  field("response_norm", o.response_norm,
        "a text's features x of each region size, and of the bag, become x / sqrt(1 + |x|^2)");
  field("bag", o.bag, "what stands beside the pooled features");
}

// nullptr: none.
inline const NaiveBayesBagConfig* bag_options(const HeadConfig& head) {
  const auto* pooled = std::get_if<MaxPooledHeadConfig>(&head);
  return pooled != nullptr ? std::get_if<NaiveBayesBagConfig>(&pooled->bag) : nullptr;
}

template <class Visitor>
void visit(Visitor& field, ClassificationConfig& c) {
  field("label_smoothing", c.label_smoothing, from_to_below(0, 1), "probability mass spread evenly over all classes");
  field("class_weights", c.class_weights, "balanced: a text's weight is 1 / the frequency of its class");
  field("token_removal", c.token_removal, from_to_below(0, 1),
        "probability that a token of a training text is left out, drawn again every epoch");
  field("token_unknown", c.token_unknown, from_to_below(0, 1),
        "probability that a token of a training text becomes the unknown token");
  field("bucketing", c.bucketing, between(1, 1 << 20),
        "steps whose texts are sorted by length together, so that there is less padding; 1: none are");
  field("truncation", c.truncation, "which model.context tokens of a longer text are kept");
  field("head", c.head, "how the classes are read from the last block");
  field(
      "selection_metric", c.selection_metric,
      "the metric of the validation split that chooses the best checkpoint; auc and loss are less noisy than accuracy "
      "where the split is small");
  field("baselines", c.baselines,
        "report the accuracy of always answering the most frequent class, and of a linear model over n-grams");
}

}  // namespace metaformer
