// The file format safetensors, and loading tensors into a model.

#include "base/error.h"
#include "run/safetensors.h"
#include "support/torch_catch.h"

namespace metaformer::test_safetensors {

static std::string with_header(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

TEST_CASE("tensors of every type and shape are read back from safetensors", "[safetensors]") {
  const NamedTensors tensors = {{"float", torch::randn({2, 3})},
                                {"a \"quoted\" näme", torch::randn({4}, torch::kDouble)},
                                {"half", torch::randn({2, 2}).to(torch::kBFloat16)},
                                {"long", torch::arange(5)},
                                {"flags", torch::arange(5) > 2},
                                {"scalar", torch::tensor(3.5)},
                                {"empty", torch::zeros({0, 7})},
                                {"strided", torch::randn({3, 4}).t()}};
  const auto bytes = to_safetensors(tensors);
  const auto loaded = from_safetensors(bytes, "t");
  REQUIRE(loaded.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(loaded[i].first == tensors[i].first);
    CHECK(loaded[i].second.scalar_type() == tensors[i].second.scalar_type());
    CHECK(torch::equal(loaded[i].second, tensors[i].second));
  }
}

TEST_CASE("hostile safetensors are refused", "[safetensors]") {
  const std::string header =
      GENERATE(as<std::string>(), "", "[]", "{", R"({"a":1})", R"({"a":{}})",
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})",
               R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})",
               R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
               R"({"a":{"dtype":"F32","shape":[1e3],"data_offsets":[0,4]}})",
               R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
               R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})",
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0]}})",
               R"({"a":{"dtype":"F32","shape":[1]}})", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})");
  INFO(header);
  CHECK_THROWS_AS(from_safetensors(with_header(header, "1234"), "t"), Error);
  CHECK_THROWS_AS(from_safetensors(with_header(header + std::string(3, ' ')), "t"), Error);
}

TEST_CASE("every truncation of a safetensors file is an error", "[safetensors]") {
  const auto bytes = to_safetensors({{"a", torch::randn({3})}, {"b", torch::randn({2})}});
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_THROWS_AS(from_safetensors(bytes.substr(0, length), "t"), Error);
  CHECK_THROWS_AS(from_safetensors(bytes + "x", "t"), Error);
  CHECK_THROWS_AS(from_safetensors(std::string(8, '\xff'), "t"), Error);
  CHECK_THROWS_WITH(from_safetensors("{", "some/file"), Mentions("some/file:|safetensors"));
}

TEST_CASE("a header with 300,000 names is read in time proportional to their number", "[safetensors]") {
  std::string header = "{";
  for (int i = 0; i < 300'000; ++i)
    header += fmt::format(R"("{}":{{"dtype":"U8","shape":[],"data_offsets":[{},{}]}},)", i, i, i + 1);
  header.back() = '}';
  const auto tensors = from_safetensors(with_header(header, std::string(300'000, '\3')), "t");
  REQUIRE(tensors.size() == 300'000);
  CHECK(tensors[299'999].first == "299999");
  CHECK(tensors[299'999].second.item<int>() == 3);
}

TEST_CASE("loading into another architecture changes nothing and is an error that names the difference",
          "[safetensors]") {
  const auto target = torch::zeros({2, 2}), other = torch::zeros({3});
  const NamedTensors targets = {{"a", target}, {"b", other}};
  const auto a = torch::ones({2, 2});
  const auto [tensors, text] = GENERATE_COPY(table<NamedTensors, std::string>(
      {{{{"a", a}}, "no tensor 'b'"},
       {{{"a", a}, {"b", torch::ones({4})}}, "'b'|shape [4]|model's|[3]"},
       {{{"a", a}, {"b", torch::ones({3})}, {"c", torch::ones({1})}}, "'c'|not part"}}));
  CHECK_THROWS_WITH(copy_by_name(tensors, targets, "f"), Mentions(text));
  CHECK(target.abs().sum().item<double>() == 0);
  copy_by_name({{"a", a}, {"b", torch::ones({3})}}, targets, "f");
  CHECK(target.sum().item<double>() == 4);
}

}  // namespace metaformer::test_safetensors
