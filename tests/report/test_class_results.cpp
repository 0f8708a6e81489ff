// Results of classifiers on the report page: reliability and ROC curves against brute force, and confusion matrices.

#include <algorithm>
#include <numeric>
#include <random>

#include "base/json.h"
#include "report/class_results.h"
#include "run/safetensors.h"
#include "support/failure.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"

namespace metaformer::test_class_results {

namespace {

// Probabilities in whole steps, so that some are equal, and labels that they often predict.
ClassProbabilities random_probabilities(std::int64_t classes, std::int64_t texts, int steps, std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  ClassProbabilities result{.classes = classes};
  for (std::int64_t text = 0; text < texts; ++text) {
    std::vector<double> row;
    for (std::int64_t i = 0; i < classes; ++i)
      row.push_back(1 + static_cast<double>(draw() % static_cast<unsigned>(steps)));
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (const double value : row) result.values.push_back(value / sum);
    result.labels.push_back(static_cast<std::int64_t>(draw() % static_cast<unsigned>(classes)));
    if (draw() % 2 == 0) result.labels.back() = result.predicted(text);
  }
  return result;
}

double part(double count, double all) { return count / all; }

// The rates of texts with at least this probability of the class.
std::pair<double, double> rates_at(const ClassProbabilities& p, std::int64_t label, double threshold) {
  double members = 0, others = 0, found = 0, wrong = 0;
  for (std::int64_t text = 0; text < p.texts(); ++text) {
    const bool is_member = p.label(text) == label, gets_it = p.at(text, label) >= threshold;
    (is_member ? members : others) += 1;
    if (gets_it) (is_member ? found : wrong) += 1;
  }
  return {part(wrong, others), part(found, members)};
}

// Whether the point is on the curve.
bool contains(const RocCurve& curve, double x, double y) {
  for (std::size_t i = 1; i < curve.false_positives.size(); ++i) {
    const double x0 = curve.false_positives[i - 1], x1 = curve.false_positives[i];
    const double y0 = curve.true_positives[i - 1], y1 = curve.true_positives[i];
    if (x < x0 - 1e-12 || x > x1 + 1e-12 || y < y0 - 1e-12 || y > y1 + 1e-12) continue;
    if (std::abs((x1 - x0) * (y - y0) - (y1 - y0) * (x - x0)) < 1e-9) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a reliability curve has the mean confidence and accuracy of the texts in each bin", "[report]") {
  for (const std::int64_t classes : {2, 5}) {
    const auto p = random_probabilities(classes, 400, 30, 7);
    const auto bins = reliability_bins(p);
    std::size_t next = 0;
    double distance = 0;
    for (int bin = 0; bin < 15; ++bin) {
      double texts = 0, confidence = 0, right = 0;
      for (std::int64_t text = 0; text < p.texts(); ++text) {
        const double highest = p.at(text, p.predicted(text));
        if (highest * 15 < bin || (highest * 15 >= bin + 1 && bin < 14)) continue;
        ++texts;
        confidence += highest;
        right += p.predicted(text) == p.label(text) ? 1 : 0;
      }
      if (texts == 0) continue;
      REQUIRE(next < bins.size());
      CHECK(static_cast<double>(bins[next].texts) == texts);
      CHECK(bins[next].confidence == Approx(confidence / texts));
      CHECK(bins[next].accuracy == Approx(right / texts));
      distance += std::abs(confidence - right);
      ++next;
    }
    CHECK(next == bins.size());
    CHECK(calibration_error(p) == Approx(distance / 400));
  }
  // A certain text is in the last bin.
  CHECK((reliability_bins({.classes = 2, .values = {1, 0}, .labels = {1}}) == std::vector<ReliabilityBin>{{1, 1, 0}}));
}

TEST_CASE("a ROC curve has the rates of every threshold, and its area is that of the measure", "[report]") {
  for (const int steps : {4, 1000}) {
    const auto p = random_probabilities(2, 150, steps, 3);
    const auto curve = roc_curve(p, 1);
    REQUIRE(curve);
    CHECK((curve->false_positives.front() == 0 && curve->true_positives.front() == 0));
    CHECK((curve->false_positives.back() == 1 && curve->true_positives.back() == 1));
    CHECK(std::ranges::is_sorted(curve->false_positives));
    CHECK(std::ranges::is_sorted(curve->true_positives));
    for (std::int64_t text = 0; text < p.texts(); ++text) {
      const auto [x, y] = rates_at(p, 1, p.at(text, 1));
      CHECK(contains(*curve, x, y));
    }
    CHECK(curve->area() == Approx(roc_auc(p).value()));
  }
  const auto several = random_probabilities(4, 200, 50, 5);
  double sum = 0;
  for (std::int64_t label = 0; label < 4; ++label) sum += roc_curve(several, label).value().area();
  CHECK(sum / 4 == Approx(roc_auc(several).value()));
}

TEST_CASE("there is no ROC curve of a class that no text or every text has", "[report]") {
  const ClassProbabilities p{.classes = 3, .values = {0.5, 0.3, 0.2, 0.1, 0.8, 0.1}, .labels = {1, 1}};
  CHECK_FALSE(roc_curve(p, 1));
  CHECK_FALSE(roc_curve(p, 2));
}

TEST_CASE("a thinned ROC curve keeps its ends and points of the whole one", "[report]") {
  const auto whole = roc_curve(random_probabilities(2, 3000, 100'000, 11), 0).value();
  REQUIRE(whole.false_positives.size() > 300);
  for (const std::size_t most : {20u, 200u}) {
    const auto thin = thinned(whole, most);
    CHECK(thin.false_positives.size() <= most);
    CHECK(thin.false_positives.size() > most / 2);
    CHECK((thin.false_positives.back() == 1 && thin.true_positives.back() == 1));
    CHECK((thin.false_positives.front() == 0 && thin.true_positives.front() == 0));
    CHECK(thin.area() == Approx(whole.area()).margin(1.0 / static_cast<double>(most)));
    for (std::size_t i = 0; i < thin.false_positives.size(); ++i)
      CHECK(contains(whole, thin.false_positives[i], thin.true_positives[i]));
  }
  CHECK(thinned(whole, 100'000).false_positives == whole.false_positives);
}

TEST_CASE("a confusion matrix is read with any labels, and a malformed one is an error with its line", "[report]") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) { return read_confusion(folder.write("confusion_test.csv", text)); };
  const auto matrix = read("true_label,\"a, b\",\"\"\"c\"\"\"\n\"a, b\",3,1\n\"\"\"c\"\"\",0,12\n");
  CHECK(matrix.labels == std::vector<std::string>{"a, b", "\"c\""});
  CHECK(matrix.counts == std::vector<std::int64_t>{3, 1, 0, 12});
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "0 rows"},
           {"true_label,a,b\na,1,2\n", "1 rows for 2 classes"},
           {"true_label,a,b\na,1,2\nb,1\n", "confusion_test.csv:3"},
           {"true_label,a,b\nb,1,2\na,1,2\n", "confusion_test.csv:2"},
           {"true_label,a,b\na,1,2\nb,1,x\n", "'x' is no number of texts"},
           {"true_label,a,b\na,1,2\nb,1,-1\n", "'-1' is no number of texts"},
           {"true_label,a\na,1\na,1\n", "confusion_test.csv:3"}})
    CHECK_THAT(message_of(ExitCode::data, [&, &text = text] { read(text); }), ContainsSubstring(part));
}

TEST_CASE("a run without results of its classes says so in one line each", "[report]") {
  const TemporaryFolder folder;
  folder.write("run/config.yaml", "{}");
  const auto run = RunDirectory::open(folder / "run");
  const auto nothing = describe_classes(run, 100);
  REQUIRE(nothing["missing"].size() == 2);
  CHECK_THAT(nothing["missing"][0].get<std::string>(), ContainsSubstring("no confusion matrix"));
  CHECK_THAT(nothing["missing"][1].get<std::string>(), Mentions("test_predictions|validation_predictions"));
  folder.write("run/confusion_validation.csv", "true_label,a,b\na,1,2\nb,0,4\n");
  const auto matrix = describe_classes(run, 100);
  CHECK(matrix["missing"].size() == 1);
  CHECK(matrix["confusion"]["validation"].dump() == "[[1,2],[0,4]]");
  CHECK(matrix["labels"].dump() == R"(["a","b"])");
  std::string head = "true_label", zeros, rows;
  for (int i = 0; i < 61; ++i) head += "," + std::to_string(i), zeros += ",0";
  for (int i = 0; i < 61; ++i) rows += "\n" + std::to_string(i) + zeros;
  folder.write("run/confusion_validation.csv", head + rows + "\n");
  const auto large = describe_classes(run, 100);
  CHECK(large["confusion"].empty());
  CHECK_THAT(large["missing"][0].get<std::string>(), ContainsSubstring("61 classes"));
}

TEST_CASE("reliability and ROC curves are of the test split, without one of the validation split", "[report]") {
  const TemporaryFolder folder;
  folder.write("run/config.yaml", "{}");
  const auto run = RunDirectory::open(folder / "run");
  const auto write = [&](const std::string& split, double probability) {
    const auto probabilities_lv = torch::tensor({{probability, 1 - probability}, {0.25, 0.75}}, torch::kDouble);
    folder.write(
        "run/" + split + "_predictions.safetensors",
        to_safetensors({{"probabilities", probabilities_lv}, {"labels", torch::tensor({0, 1}, torch::kLong)}}));
  };
  for (const std::string split : {"validation", "test"}) {
    write(split, split == "test" ? 0.9 : 0.6);
    const auto found = describe_classes(run, 100);
    CHECK(found["split"] == split);
    CHECK(found["reliability"].back()[1] == (split == "test" ? 0.9 : 0.75));
    CHECK(found["roc"].size() == 1);
    CHECK(found["missing"].size() == 1);  // the confusion matrix
  }
}

}  // namespace metaformer::test_class_results
