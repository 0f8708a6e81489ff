// Curves of runs and of groups, against numbers by hand.

#include "report/curves.h"
#include "report/json.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace metaformer {

namespace {

StepCurve line(std::size_t count) {
  StepCurve curve;
  for (std::size_t i = 1; i <= count; ++i) {
    curve.step.push_back(static_cast<double>(10 * i));
    curve.time.push_back(static_cast<double>(i));
    curve.value.push_back(static_cast<double>(i * i));
  }
  return curve;
}

LoggedCurves read(const std::string& text) {
  const TemporaryFolder folder;
  return read_curves(folder.write("metrics.jsonl", text));
}

}  // namespace

TEST_CASE("curves are read with the training time of their step", "[report]") {
  const auto curves = read(R"({"step":10,"split":"train","loss":4.5,"gradient_norm":2,"seconds":1.5}
{"step":10,"split":"validation","loss":4.25,"accuracy":0.5}
not json
{"step":20,"split":"train","loss":null,"seconds":3}
{"step":20,"split":"validation","loss":4,"accuracy":0.75}
{"step":20,"split":"validation","loss":4,"accuracy":0.75}
{"step":20,"split":"test","loss":1}
)")
                          .curves;
  CHECK(curves.at("train loss").value == std::vector<double>{4.5});
  CHECK(curves.at("validation loss").step == std::vector<double>{10, 20});
  CHECK(curves.at("validation loss").time == std::vector<double>{1.5, 3});
  CHECK(curves.at("validation accuracy").value == std::vector<double>{0.5, 0.75});
  CHECK(curves.size() == 4);
}

TEST_CASE("where the validation loss is estimated, the estimates are the curve", "[report]") {
  const auto curves = read(R"({"step":10,"split":"validation_estimate","loss":3}
{"step":20,"split":"validation_estimate","loss":2}
{"step":20,"split":"validation","loss":2.5}
)")
                          .curves;
  CHECK(curves.at("validation loss").value == std::vector<double>{3, 2});
}

TEST_CASE("a thinned curve of means keeps its mean", "[report]") {
  const auto curve = line(1000);
  const auto thin = thinned(curve, 100, true);
  REQUIRE(thin.value.size() == 100);
  CHECK(thin.step.front() == 100);
  CHECK(thin.step.back() == 10000);
  CHECK(thin.value.front() == Approx(38.5));  // the mean of 1, 4, ..., 100
  double sum = 0, thin_sum = 0;
  for (const double value : curve.value) sum += value / 1000;
  for (const double value : thin.value) thin_sum += value / 100;
  CHECK(thin_sum == Approx(sum));
}

TEST_CASE("other thinned curves keep points as they are, the last one too", "[report]") {
  for (const std::size_t count : {101u, 150u, 999u}) {
    const auto curve = line(count), thin = thinned(curve, 100, false);
    REQUIRE(thin.value.size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(thin.value[i] == thin.time[i] * thin.time[i]);
    CHECK(thin.step.back() == curve.step.back());
  }
  CHECK(thinned(line(100), 100, true).value == line(100).value);
}

TEST_CASE("a group's curve is the mean at the steps that all runs have", "[report]") {
  const StepCurve a{.step = {1, 2, 3, 5}, .time = {1, 2, 3, 5}, .value = {10, 8, 6, 4}};
  const StepCurve b{.step = {1, 3, 4, 5}, .time = {3, 5, 6, 7}, .value = {14, 6, 0, 1}};
  const auto group = mean_curve({&a, &b});
  CHECK(group.step == std::vector<double>{1, 3, 5});
  CHECK(group.time == std::vector<double>{2, 4, 6});
  CHECK(group.value == std::vector<double>{12, 6, 2.5});
  const double deviation = std::sqrt(8.0);  // of 10 and 14, with n - 1
  CHECK(group.low[0] == Approx(12 - deviation));
  CHECK(group.high[0] == Approx(12 + deviation));
  CHECK((group.low[1] == 6 && group.high[1] == 6));
  const auto one = mean_curve({&a});
  CHECK((one.value == a.value && one.low.empty() && one.high.empty()));
  CHECK(mean_curve({}).step.empty());
}

TEST_CASE("runs that evaluate only at their end begin with the training loss", "[report]") {
  CurveTable table;
  table["train loss"].runs = {line(5)};
  table["validation loss"].runs = {line(1)};
  CHECK(views_of(table).front().name == "train loss");
  table["validation loss"].runs = {line(2)};
  CHECK(views_of(table).front().name == "validation loss");
}

TEST_CASE("curves of blocks are read from the diagnostics: numbers, and lists by head with their range", "[report]") {
  const auto panels = read(R"({"step":1,"split":"train","loss":4.5}
{"step":5,"split":"diagnostics","token_embedding":{"stream_norm":1},"block_0":{"stream_norm":2,"attention_entropy":[0.25,0.75]}}
{"step":10,"split":"diagnostics","token_embedding":{"stream_norm":3},"block_0":{"stream_norm":4,"attention_entropy":[null,0.5]}}
)")
                          .blocks;
  REQUIRE(panels.size() == 2);
  CHECK(panels[0].title == "norm of the stream");
  REQUIRE(panels[0].lines.size() == 2);
  CHECK(panels[0].lines[0].first == "token_embedding");
  const auto& norm = panels[0].lines[1].second;
  CHECK(norm.step == std::vector<double>{5, 10});
  CHECK(norm.value == std::vector<double>{2, 4});
  CHECK(norm.low.empty());
  CHECK(panels[1].title == "entropy of attention (1: uniform)");
  const auto& entropy = panels[1].lines.at(0).second;
  CHECK(entropy.value == std::vector<double>{0.5, 0.5});
  CHECK(entropy.low == std::vector<double>{0.25, 0.5});
  CHECK(entropy.high == std::vector<double>{0.75, 0.5});
  const auto json = to_json(panels, 1);
  REQUIRE(json.size() == 2);
  CHECK(json[0]["title"] == "norm of the stream");
  CHECK(json[0]["log"] == true);
  CHECK(json[1]["log"] == false);
  CHECK(json[0]["lines"][1]["step"].dump() == "[10]");
  CHECK(json[1]["lines"][0]["low"].dump() == "[0.5]");
}

}  // namespace metaformer
