#include "run/gguf.h"

#include <bit>
#include <cstring>
#include <string_view>

namespace metaformer {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

namespace {

constexpr std::size_t alignment = 32;        // of the data of a tensor
constexpr std::uint32_t float32_tensor = 0;  // as a type of tensors

// The types of values, as the format numbers them.
enum class GgufType : std::uint32_t { int32 = 5, uint32 = 4, float32 = 6, boolean = 7, text = 8, list = 9 };

constexpr GgufType gguf_type(std::int32_t) { return GgufType::int32; }
constexpr GgufType gguf_type(std::uint32_t) { return GgufType::uint32; }
constexpr GgufType gguf_type(float) { return GgufType::float32; }
constexpr GgufType gguf_type(bool) { return GgufType::boolean; }
GgufType gguf_type(const std::string&) { return GgufType::text; }

std::size_t aligned(std::size_t size) { return (size + alignment - 1) / alignment * alignment; }

struct GgufBytes {
  std::string bytes;

  template <class Number>
  void put(Number number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    bytes += text;
  }
  template <class Value>
  void put_typed(const Value& value) {
    put(gguf_type(value));
    put(value);
  }
  template <class Value>
  void put_typed(const std::vector<Value>& values) {
    put(GgufType::list);
    put(gguf_type(Value{}));
    put(std::uint64_t{values.size()});
    for (const auto& value : values) put(value);
  }
};

// The format lists the sizes of dimensions from the last to the first.
void put_description(const std::string& name, const torch::Tensor& tensor, std::uint64_t offset, GgufBytes& file) {
  file.put(name);
  file.put(static_cast<std::uint32_t>(tensor.dim()));
  for (auto dimension = tensor.dim(); dimension-- > 0;) file.put(static_cast<std::uint64_t>(tensor.size(dimension)));
  file.put(float32_tensor);
  file.put(offset);
}

}  // namespace

std::string to_gguf(const GgufMetadata& metadata, const NamedTensors& tensors) {
  constexpr std::uint32_t version = 3;
  GgufBytes file{"GGUF"};
  file.put(version);
  file.put(std::uint64_t{tensors.size()});
  file.put(std::uint64_t{metadata.size()});
  for (const auto& [key, value] : metadata) {
    file.put(key);
    std::visit([&](const auto& given) { file.put_typed(given); }, value);
  }
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    put_description(name, tensor, offset, file);
    offset += aligned(static_cast<std::size_t>(tensor.numel()) * sizeof(float));
  }
  auto bytes = std::move(file.bytes);
  bytes.resize(aligned(bytes.size()));
  bytes.reserve(bytes.size() + offset);
  for (const auto& [name, tensor] : tensors) {
    const auto plain = tensor.detach().to(torch::kCPU, torch::kFloat).contiguous();
    bytes.append(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
    bytes.resize(aligned(bytes.size()));
  }
  return bytes;
}

}  // namespace metaformer
