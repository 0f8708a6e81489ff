// Scaling of embeddings and n-grams by their log-count ratios between classes.

#include <set>

#include "model/embedding.h"
#include "model/transformer.h"
#include "support/workplace.h"

namespace metaformer::test_embedding_scale {

namespace {

using Texts = std::vector<std::pair<std::string, int>>;  // with their classes
using Features = std::set<std::int64_t>;

LoadedRun trained(const Workplace& place, const Texts& texts, const Overrides& more) {
  std::string table = "text\tlabel\n";
  for (const auto& [text, label] : texts) table += text + "\tclass" + std::to_string(label) + "\n";
  place.folder().write("train.tsv", table);
  place.folder().write("validation.tsv", "text\tlabel\nthe green\tclass0\nthe blue red\tclass1\n");
  place.train("run", joined({"task=classification", "data.path='" + (place / "train.tsv").string() + "'",
                             "data.validation_path='" + (place / "validation.tsv").string() + "'",
                             "data.tokenizer.kind=word", "train.steps=1"},
                            more));
  return load_run(place / "run", "last", "cpu");
}

void add_ngrams(Features& features, const std::vector<std::int32_t>& ids, std::int64_t n, std::int64_t buckets) {
  const auto ids_1c = torch::tensor(std::vector<std::int64_t>(ids.begin(), ids.end())).unsqueeze(0);
  const auto found = ngram_buckets(ids_1c, n, buckets)[0];
  for (std::int64_t i = 0; i < found.size(0); ++i) features.insert(-1 - found[i].item<std::int64_t>());
}

// The largest log-count ratio of a class against the others; 0 if no text has the feature.
double ratio(const Texts& texts, const std::vector<Features>& features, std::int64_t feature, int classes) {
  Features all;
  for (const auto& of_text : features) all.insert(of_text.begin(), of_text.end());
  double largest = 0;
  for (int label = 0; all.contains(feature) && label < classes; ++label) {
    double with[2] = {}, sum[2] = {};  // of the class, of the others
    for (const auto each : all)
      for (const auto side : {0, 1}) {
        double count = 3;  // smoothing
        for (std::size_t i = 0; i < texts.size(); ++i)
          count += (texts[i].second == label) == (side == 0) && features[i].contains(each);
        sum[side] += count;
        if (each == feature) with[side] = count;
      }
    largest = std::max(largest, std::abs(std::log(with[0] / sum[0] / (with[1] / sum[1]))));
  }
  return largest;
}

}  // namespace

TEST_CASE("embeddings are scaled by their largest log-count ratio between classes", "[classification]") {
  const Workplace place;
  const int classes = GENERATE(2, 3);
  const std::string head = GENERATE("mean_pooled", "first_token");
  // One word in every text, one in a single class, one twice in a text; the longest text is cut to 4 tokens.
  Texts texts = {{"the red red", 0}, {"the red blue", 0},  {"the blue grey", 1},
                 {"the grey", 1},    {"the grey blue", 1}, {"the a b c d e", 0}};
  if (classes == 3) texts.insert(texts.end(), {{"the pink", 2}, {"the pink grey", 2}});
  const auto run = trained(place, texts,
                           {"model.context=4", "task.head=" + head, "model.embedding.scale=log_count_ratio",
                            "model.embedding.ngrams={order: 2, buckets: 64}", "task.token_removal=0.5"});
  // A class token, whose id is the size of the vocabulary, precedes the text, and so is in the first pair.
  const auto class_token = static_cast<std::int32_t>(run.codec.tokenizer->vocabulary_size());
  std::vector<Features> features;  // token ids, and buckets as negative numbers
  for (const auto& [text, label] : texts) {
    auto ids = run.codec.tokenizer->encode(text);
    ids.resize(std::min<std::size_t>(ids.size(), 4));
    if (head == "first_token") ids.insert(ids.begin(), class_token);
    add_ngrams(features.emplace_back(ids.begin(), ids.end()), ids, 2, 64);
  }
  const auto buffers = run.model->named_buffers();
  for (const auto* name : {"transformer.token_scale", "transformer.ngram_scale"}) {
    const auto scale_v1 = buffers[name];
    for (std::int64_t i = 0; i < scale_v1.size(0); ++i) {
      const auto feature = std::string(name) == "transformer.token_scale" ? i : -1 - i;
      INFO(feature);
      const double expected = feature == class_token ? 1 : ratio(texts, features, feature, classes);
      CHECK(scale_v1[i].item<double>() == Approx(expected).margin(1e-6));
    }
  }
}

TEST_CASE("the n-grams of a bag are scaled by their largest log-count ratio between classes", "[classification]") {
  const Workplace place;
  const Texts texts = {{"red red blue", 0}, {"red grey", 0}, {"blue grey", 1}, {"grey", 1}, {"grey blue", 1}};
  const auto run =
      trained(place, texts,
              {"data.tokenizer.min_count=1",
               "task.head={kind: max_pooled, bag: {kind: naive_bayes, ngrams: 2, buckets: 4096, units: 3}}"});
  std::vector<Features> features;
  for (const auto& [text, label] : texts) {
    const auto ids = run.codec.tokenizer->encode(text);
    auto& of_text = features.emplace_back();
    for (const std::int64_t n : {1, 2}) add_ngrams(of_text, ids, n, 4096);
  }
  const auto scale_g = run.model->named_buffers()["bag.scale"];
  for (std::int64_t bucket = 0; bucket < 4096; ++bucket) {
    INFO(bucket);
    CHECK(scale_g[bucket].item<double>() == Approx(ratio(texts, features, -1 - bucket, 2)).margin(1e-6));
  }
}

}  // namespace metaformer::test_embedding_scale
