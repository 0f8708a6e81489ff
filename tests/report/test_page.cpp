// The page's data: matrices survive packing, and text of runs stays text.

#include "base/digest.h"
#include "base/json.h"
#include "report/json.h"
#include "report/page.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

// As report/page/matrix.js reads it. NaN: hidden.
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

void check_error(const torch::Tensor& matrix, const nlohmann::ordered_json& packed, double largest) {
  const double range = packed["high"].get<double>() - packed["low"].get<double>();
  CHECK((unpack(packed) - matrix).abs().nan_to_num(0).max().item<double>() <= range * largest * 1.0001);
}

}  // namespace

TEST_CASE("packed matrices are as near as their bits allow", "[report]") {
  torch::manual_seed(1);
  const auto small = torch::randn({40, 50}, torch::kDouble), large = torch::randn({100, 120}, torch::kDouble);
  CHECK(pack(small)["bits"] == 16);
  check_error(small, pack(small), 0.5 / 65535);
  CHECK(pack(large)["bits"] == 8);
  check_error(large, pack(large), 0.5 / 255);
}

TEST_CASE("of symmetric and causal matrices one triangle is packed", "[report]") {
  torch::manual_seed(2);
  const auto any = torch::randn({30, 30}, torch::kDouble);
  const auto symmetric = any + any.t();
  CHECK(pack(any)["layout"] == "full");
  CHECK(pack(symmetric)["layout"] == "symmetric");
  check_error(symmetric, pack(symmetric), 0.5 / 65535);
  const auto causal = pack(any, true);
  CHECK(causal["layout"] == "lower");
  CHECK(unpack(causal).isnan().sum().item<std::int64_t>() == 30 * 29 / 2);
  check_error(any, causal, 0.5 / 65535);
}

TEST_CASE("matrices without values or with one value", "[report]") {
  CHECK(pack({}).is_null());
  CHECK(pack(torch::full({2, 2}, std::nan(""))).is_null());
  CHECK(unpack(pack(torch::full({2, 2}, 3.0))).equal(torch::full({2, 2}, 3.0, torch::kDouble)));
}

TEST_CASE("text of runs can neither end the data nor fill a placeholder", "[report]") {
  const nlohmann::ordered_json data = {{"text", "</script><script>alert(1)</script><!-- @d3@ @script@ \xff"}};
  const auto page = make_page("<b>@data@", json_text(data));
  const auto start = page.find("id=\"report-data\">") + 17, end = page.find("</script>", start);
  const auto parsed = parse_json<nlohmann::ordered_json>(page.substr(start, end - start));
  CHECK(parsed["text"] == "</script><script>alert(1)</script><!-- @d3@ @script@ \xef\xbf\xbd");
  CHECK(page.find("<title>&lt;b&gt;@data@</title>") != std::string::npos);
  CHECK(page.find("Redistribution and use in source and binary forms") != std::string::npos);
}

}  // namespace metaformer
