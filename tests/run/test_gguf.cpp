// The bytes of GGUF files; tests/python/export_gguf.py reads exported models with the package gguf.

#include <cstring>

#include "run/gguf.h"
#include "support/torch_catch.h"

namespace metaformer::test_gguf {

namespace {

// Reads the values of a file one after the other.
struct Bytes {
  const std::string& file;
  std::size_t at = 0;

  template <class Number>
  Number take() {
    Number number;
    REQUIRE(at + sizeof number <= file.size());
    std::memcpy(&number, file.data() + at, sizeof number);
    at += sizeof number;
    return number;
  }
  std::string text() {
    const auto size = take<std::uint64_t>();
    REQUIRE(size <= file.size() - at);
    at += size;
    return file.substr(at - size, size);
  }
};

// Magic, version 3 and the two counts.
void check_head(Bytes& bytes, std::uint64_t tensors, std::uint64_t values) {
  CHECK(bytes.file.starts_with("GGUF"));
  bytes.at = 4;
  CHECK(bytes.take<std::uint32_t>() == 3);
  CHECK(bytes.take<std::uint64_t>() == tensors);
  CHECK(bytes.take<std::uint64_t>() == values);
}

}  // namespace

TEST_CASE("metadata are keys, types and values in the given order", "[gguf]") {
  const auto file = to_gguf({{"number", std::uint32_t{7}},
                             {"factor", 0.5F},
                             {"flag", true},
                             {"name", std::string("caf\u00e9")},
                             {"words", std::vector<std::string>{"a", ""}},
                             {"scores", std::vector<float>{-1.5F}},
                             {"types", std::vector<std::int32_t>{-1, 6}},
                             {"none", std::vector<std::string>{}}},
                            {});
  Bytes bytes{file};
  check_head(bytes, 0, 8);
  const auto key = [&](const std::string& name, std::uint32_t type) {
    CHECK(bytes.text() == name);
    CHECK(bytes.take<std::uint32_t>() == type);
  };
  const auto list = [&](const std::string& name, std::uint32_t type, std::uint64_t size) {
    key(name, 9);
    CHECK(bytes.take<std::uint32_t>() == type);
    CHECK(bytes.take<std::uint64_t>() == size);
  };
  key("number", 4);
  CHECK(bytes.take<std::uint32_t>() == 7);
  key("factor", 6);
  CHECK(bytes.take<float>() == 0.5F);
  key("flag", 7);
  CHECK(bytes.take<std::uint8_t>() == 1);
  key("name", 8);
  CHECK(bytes.text() == "caf\u00e9");
  list("words", 8, 2);
  CHECK(bytes.text() == "a");
  CHECK(bytes.text().empty());
  list("scores", 6, 1);
  CHECK(bytes.take<float>() == -1.5F);
  list("types", 5, 2);
  CHECK(bytes.take<std::int32_t>() == -1);
  CHECK(bytes.take<std::int32_t>() == 6);
  list("none", 8, 0);
  CHECK(file.size() - bytes.at < 32);  // zeros up to a multiple of 32
  CHECK(file.size() % 32 == 0);
}

TEST_CASE("tensors of any type and layout are float32 rows at multiples of 32 bytes", "[gguf]") {
  const NamedTensors tensors = {
      {"matrix", torch::arange(6, torch::kFloat).reshape({3, 2}).t()},  // not contiguous
      {"vector", torch::tensor({1.5, -2.0, 3.0}, torch::kDouble)},
      {"half", torch::full({9}, 0.25, torch::kHalf).set_requires_grad(true)},
  };
  const auto file = to_gguf({}, tensors);
  Bytes bytes{file};
  check_head(bytes, 3, 0);
  std::vector<std::uint64_t> offsets;
  for (const auto& [name, tensor] : tensors) {
    CHECK(bytes.text() == name);
    CHECK(bytes.take<std::uint32_t>() == static_cast<std::uint32_t>(tensor.dim()));
    for (auto dimension = tensor.dim(); dimension-- > 0;)
      CHECK(bytes.take<std::uint64_t>() == static_cast<std::uint64_t>(tensor.size(dimension)));
    CHECK(bytes.take<std::uint32_t>() == 0);
    offsets.push_back(bytes.take<std::uint64_t>());
  }
  CHECK(offsets == std::vector<std::uint64_t>{0, 32, 64});
  const auto data = (bytes.at + 31) / 32 * 32;
  CHECK(file.size() == data + 64 + 64);  // 36 bytes of the last tensor, and zeros
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i].second;
    auto read = torch::empty(tensor.sizes(), torch::kFloat);
    std::memcpy(read.data_ptr(), file.data() + data + offsets[i], read.nbytes());
    CHECK(read.equal(tensor.detach().to(torch::kFloat)));
  }
}

}  // namespace metaformer::test_gguf
