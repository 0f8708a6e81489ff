// The data of a report's page: curves of runs and groups against numbers by hand, quantised matrices, and text that
// cannot become markup.

#include <numeric>

#include "base/digest.h"
#include "base/json.h"
#include "report/curves.h"
#include "report/json.h"
#include "report/report.h"
#include "support/temporary_folder.h"
#include "support/torch_catch.h"

namespace metaformer::test_page {

namespace {

// Reads a matrix as report/page/matrix.js does. Hidden cells are NaN.
torch::Tensor unpack(const nlohmann::ordered_json& packed) {
  const auto bytes = from_base64(packed["data"].get<std::string>()).value();
  const std::int64_t rows = packed["rows"], columns = packed["columns"], bits = packed["bits"];
  const double low = packed["low"], step = (packed["high"].get<double>() - low) / (std::exp2(bits) - 1);
  auto matrix = torch::full({rows, columns}, std::nan(""), torch::kDouble);
  std::size_t next = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < (packed["layout"] == "full" ? columns : row + 1); ++column) {
      int level = static_cast<unsigned char>(bytes.at(next++));
      if (bits == 16) level += 256 * static_cast<unsigned char>(bytes.at(next++));
      matrix[row][column] = low + step * level;
      if (packed["layout"] == "symmetric") matrix[column][row] = low + step * level;
    }
  CHECK(next == bytes.size());
  return matrix;
}

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

TEST_CASE(
    "quantised matrices are as accurate as their bits allow, and symmetric and causal ones are stored as a triangle",
    "[report]") {
  torch::manual_seed(1);
  const auto any = torch::randn({30, 40}, torch::kDouble), large = torch::randn({100, 120}, torch::kDouble);
  const auto square = any.slice(1, 0, 30).contiguous(), symmetric = square + square.t();
  for (const auto& [matrix, is_causal, layout, bits] : {std::tuple(any, false, "full", 16),
                                                        {large, false, "full", 8},
                                                        {square, false, "full", 16},
                                                        {symmetric, false, "symmetric", 16},
                                                        {square, true, "lower", 16}}) {
    const auto packed = pack(matrix, is_causal);
    CHECK((packed["layout"] == layout && packed["bits"] == bits));
    const double range = packed["high"].get<double>() - packed["low"].get<double>();
    const auto unpacked = unpack(packed);
    CHECK((unpacked - matrix).abs().nan_to_num(0).max().item<double>() <= range * 0.50005 / (std::exp2(bits) - 1));
    CHECK(unpacked.isnan().sum().item<std::int64_t>() == (is_causal ? 30 * 29 / 2 : 0));
  }
  CHECK(pack({}).is_null());
  CHECK(pack(torch::full({2, 2}, std::nan(""))).is_null());
  CHECK(unpack(pack(torch::full({2, 2}, 3.0))).equal(torch::full({2, 2}, 3.0, torch::kDouble)));
}

TEST_CASE("text of runs cannot end the data or fill a placeholder", "[report]") {
  const nlohmann::ordered_json data = {{"text", "</script><script>alert(1)</script><!-- @d3@ @script@ \xff"}};
  const auto page = make_page("<b>@data@", json_text(data));
  const auto start = page.find("id=\"report-data\">") + 17, end = page.find("</script>", start);
  const auto parsed = parse_json<nlohmann::ordered_json>(page.substr(start, end - start));
  CHECK(parsed["text"] == "</script><script>alert(1)</script><!-- @d3@ @script@ \xef\xbf\xbd");
  CHECK(page.find("<title>&lt;b&gt;@data@</title>") != std::string::npos);
  CHECK(page.find("Redistribution and use in source and binary forms") != std::string::npos);
}

TEST_CASE("curves are read with the training times of their steps", "[report]") {
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
  // If the validation loss is estimated, the curve consists of the estimates.
  const auto estimated = read(R"({"step":10,"split":"validation_estimate","loss":3}
{"step":20,"split":"validation_estimate","loss":2}
{"step":20,"split":"validation","loss":2.5}
)")
                             .curves;
  CHECK(estimated.at("validation loss").value == std::vector<double>{3, 2});
}

TEST_CASE("curves of learning rate and throughput are read, and the tokens at every step", "[report]") {
  const auto curves = read(R"({"step":10,"split":"train","loss":4,"learning_rate":0.5,"tokens":100,"seconds":2}
{"step":10,"split":"validation","loss":4}
{"step":20,"split":"train","loss":3,"learning_rate":0.25,"tokens":300,"seconds":3}
{"step":30,"split":"train","loss":3,"learning_rate":0.125,"tokens":200,"seconds":4}
{"step":40,"split":"train","loss":3,"seconds":4,"tokens":250}
)")
                          .curves;
  CHECK(curves.at("learning rate").value == std::vector<double>{0.5, 0.25, 0.125});
  const auto& speed = curves.at("tokens per second");  // not where time or tokens do not grow, as after a rollback
  CHECK(speed.step == std::vector<double>{10, 20});
  CHECK(speed.value == std::vector<double>{50, 200});
  CHECK(curves.at("validation loss").tokens == std::vector<double>{100});
  CHECK(curves.at("train loss").tokens == std::vector<double>{100, 300, 200, 250});
  const auto unknown = read(R"({"step":10,"split":"train","loss":4,"seconds":2})").curves;
  CHECK(std::isnan(unknown.at("train loss").tokens.at(0)));
  CHECK_FALSE(unknown.contains("tokens per second"));
}

TEST_CASE("curves with the same steps share their axis in the page", "[report]") {
  CurveTable table;
  for (const char* name : {"train loss", "gradient norm"}) table[name].runs = {line(3), {}};
  table["validation loss"].runs = {line(2), line(3)};
  auto slow = line(3);
  slow.time.back() = 9;
  table["validation accuracy"].runs = {slow, {}};
  table["train loss"].runs[0].tokens = table["gradient norm"].runs[0].tokens = {1, 2, 3};
  const auto json = to_json(table);
  const auto axis_of = [&](const char* name, std::size_t run) { return json["series"][name]["runs"][run]["axis"]; };
  CHECK(axis_of("train loss", 0) == axis_of("gradient norm", 0));
  CHECK(json["axes"].size() == 4);
  CHECK(json["axes"][axis_of("train loss", 0).get<std::size_t>()].dump() ==
        R"({"step":[10,20,30],"time":[1,2,3],"tokens":[1,2,3]})");
  CHECK(json["axes"][axis_of("validation loss", 0).get<std::size_t>()].dump() == R"({"step":[10,20],"time":[1,2]})");
  CHECK(json["series"]["train loss"]["runs"][1].is_null());
}

TEST_CASE("only a page from a server may ask for data", "[report]") {
  CHECK(make_page("a", "{}").find("connect-src") == std::string::npos);
  CHECK(make_page("a", "{}", /*may_fetch=*/true).find("img-src data:; connect-src 'self'\"") != std::string::npos);
}

TEST_CASE("a thinned curve has means of points or unchanged points, including the last one", "[report]") {
  const auto curve = line(1000), thin = thinned(curve, 100, true);
  REQUIRE(thin.value.size() == 100);
  CHECK((thin.step.front() == 100 && thin.step.back() == 10000));
  CHECK(thin.value.front() == Approx(38.5));  // the mean of 1, 4, ..., 100
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  CHECK(mean(thin.value) == Approx(mean(curve.value)));
  for (const std::size_t count : {101u, 150u, 999u}) {
    const auto whole = line(count), kept = thinned(whole, 100, false);
    REQUIRE(kept.value.size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(kept.value[i] == kept.time[i] * kept.time[i]);
    CHECK(kept.step.back() == whole.step.back());
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
  const double deviation = std::sqrt(8.0);  // of 10 and 14, divided by n - 1
  CHECK(group.low[0] == Approx(12 - deviation));
  CHECK(group.high[0] == Approx(12 + deviation));
  CHECK((group.low[1] == 6 && group.high[1] == 6));
  const auto one = mean_curve({&a});
  CHECK((one.value == a.value && one.low.empty() && one.high.empty()));
  CHECK(mean_curve({}).step.empty());
}

TEST_CASE("for runs with only a final evaluation the training loss is shown first", "[report]") {
  CurveTable table;
  table["train loss"].runs = {line(5)};
  table["validation loss"].runs = {line(1)};
  CHECK(views_of(table).front().name == "train loss");
  table["validation loss"].runs = {line(2)};
  CHECK(views_of(table).front().name == "validation loss");
}

TEST_CASE("curves of blocks are read from the diagnostics, also the ranges of lists by head", "[report]") {
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

}  // namespace metaformer::test_page
