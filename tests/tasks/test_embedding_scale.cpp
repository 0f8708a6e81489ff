#include <set>

#include "model/embedding.h"
#include "model/transformer.h"
#include "support/workplace.h"

namespace metaformer {

TEST_CASE("embeddings are scaled by how unequally the classes' texts have them", "[classification]") {
  const Workplace place;
  const std::int64_t classes = GENERATE(2, 3), buckets = 64;
  const std::string head = GENERATE("mean_pooled", "first_token");
  // A word in every text, one of a class alone, one twice in a text; the longest text is cut to 4 tokens.
  std::vector<std::pair<std::string, int>> texts = {{"the red red", 0}, {"the red blue", 0},  {"the blue grey", 1},
                                                    {"the grey", 1},    {"the grey blue", 1}, {"the a b c d e", 0}};
  if (classes == 3) texts.insert(texts.end(), {{"the pink", 2}, {"the pink grey", 2}});
  std::string table = "text\tlabel\n";
  for (const auto& [text, label] : texts) table += text + "\tclass" + std::to_string(label) + "\n";
  place.folder().write("train.tsv", table);
  place.folder().write("validation.tsv", "text\tlabel\nthe green\tclass0\nthe blue red\tclass1\n");
  place.train("run", {"task=classification", "data.path='" + (place / "train.tsv").string() + "'",
                      "data.validation_path='" + (place / "validation.tsv").string() + "'", "data.tokenizer.kind=word",
                      "model.context=4", "task.head=" + head, "model.embedding.scale=log_count_ratio",
                      "model.embedding.ngrams={order: 2, buckets: 64}", "train.steps=1", "task.token_removal=0.5"});
  const auto run = load_run(place / "run", "last", "cpu");
  const auto buffers = run.model->named_buffers();

  // A class token, whose id is the vocabulary, stands before the text, and so before the first pair.
  const auto class_token = static_cast<std::int32_t>(run.codec.tokenizer->vocabulary_size());
  std::vector<std::set<std::int64_t>> features;  // token ids, and buckets as negative numbers
  std::set<std::int64_t> all;
  for (const auto& [text, label] : texts) {
    auto ids = run.codec.tokenizer->encode(text);
    ids.resize(std::min<std::size_t>(ids.size(), 4));
    if (head == "first_token") ids.insert(ids.begin(), class_token);
    auto& of_text = features.emplace_back(ids.begin(), ids.end());
    const auto ids_bc = torch::tensor(std::vector<std::int64_t>(ids.begin(), ids.end())).unsqueeze(0);
    const auto buckets_bc = ngram_buckets(ids_bc, 2, buckets);
    for (std::int64_t i = 0; i < buckets_bc.size(1); ++i) of_text.insert(-1 - buckets_bc[0][i].item<std::int64_t>());
    all.insert(of_text.begin(), of_text.end());
  }
  const auto ratio = [&](std::int64_t feature, int label) {
    double with[2] = {}, sum[2] = {};  // of the class, of the others
    for (const auto each : all) {
      for (auto side : {0, 1}) {
        double count = 3;
        for (std::size_t i = 0; i < texts.size(); ++i)
          count += (texts[i].second == label) == (side == 0) && features[i].contains(each);
        sum[side] += count;
        if (each == feature) with[side] = count;
      }
    }
    return std::log(with[0] / sum[0] / (with[1] / sum[1]));
  };
  const auto check = [&](const torch::Tensor& scale_v1, std::int64_t sign) {
    for (std::int64_t i = 0; i < scale_v1.size(0); ++i) {
      const auto feature = sign > 0 ? i : -1 - i;
      double expected = feature == class_token ? 1 : 0;  // whose embedding is not scaled
      for (int label = 0; all.contains(feature) && feature != class_token && label < classes; ++label)
        expected = std::max(expected, std::abs(ratio(feature, label)));
      INFO(feature);
      CHECK(scale_v1[i].item<double>() == Approx(expected).margin(1e-6));
    }
  };
  check(buffers["transformer.token_scale"], 1);
  check(buffers["transformer.ngram_scale"], -1);
}

TEST_CASE("the n-grams of a bag are scaled by how unequally the classes' texts have them", "[classification]") {
  const Workplace place;
  const std::vector<std::pair<std::string, int>> texts = {
      {"red red blue", 0}, {"red grey", 0}, {"blue grey", 1}, {"grey", 1}, {"grey blue", 1}};
  std::string table = "text\tlabel\n";
  for (const auto& [text, label] : texts) table += text + "\tclass" + std::to_string(label) + "\n";
  place.folder().write("train.tsv", table);
  place.folder().write("validation.tsv", "text\tlabel\nred\tclass0\nblue\tclass1\n");
  place.train("run", {"task=classification", "data.path='" + (place / "train.tsv").string() + "'",
                      "data.validation_path='" + (place / "validation.tsv").string() + "'", "data.tokenizer.kind=word",
                      "data.tokenizer.min_count=1", "train.steps=1",
                      "task.head={kind: max_pooled, bag: {kind: naive_bayes, ngrams: 2, buckets: 4096, units: 3}}"});
  const auto run = load_run(place / "run", "last", "cpu");
  const auto scale_g = run.model->named_buffers()["bag.scale"];

  std::vector<std::set<std::int64_t>> buckets;
  std::set<std::int64_t> all;
  for (const auto& [text, label] : texts) {
    const auto ids = run.codec.tokenizer->encode(text);
    const auto ids_1c = torch::tensor(std::vector<std::int64_t>(ids.begin(), ids.end())).unsqueeze(0);
    auto& of_text = buckets.emplace_back();
    for (const std::int64_t n : {1, 2}) {
      const auto found = ngram_buckets(ids_1c, n, 4096)[0];
      for (std::int64_t i = 0; i < found.size(0); ++i) of_text.insert(found[i].item<std::int64_t>());
    }
    all.insert(of_text.begin(), of_text.end());
  }
  const auto count = [&](std::int64_t bucket, int label) {
    double texts_with = 3;  // smoothing
    for (std::size_t i = 0; i < texts.size(); ++i)
      texts_with += texts[i].second == label && buckets[i].contains(bucket);
    return texts_with;
  };
  double sums[2] = {};
  for (const auto bucket : all)
    for (const int label : {0, 1}) sums[label] += count(bucket, label);
  for (std::int64_t bucket = 0; bucket < 4096; ++bucket) {
    const double ratio = std::log(count(bucket, 0) / sums[0] / (count(bucket, 1) / sums[1]));
    INFO(bucket);
    CHECK(scale_g[bucket].item<double>() == Approx(all.contains(bucket) ? std::abs(ratio) : 0).margin(1e-6));
  }
}

}  // namespace metaformer
