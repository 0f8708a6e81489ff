#include "run/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace metaformer {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;  // limit of the format's own reader

constexpr std::array<std::pair<const char*, torch::ScalarType>, 8> types = {{{"F32", torch::kFloat},
                                                                             {"F64", torch::kDouble},
                                                                             {"BF16", torch::kBFloat16},
                                                                             {"F16", torch::kHalf},
                                                                             {"I64", torch::kLong},
                                                                             {"I32", torch::kInt},
                                                                             {"U8", torch::kByte},
                                                                             {"BOOL", torch::kBool}}};

const char* type_name(torch::ScalarType type) {
  for (const auto& [name, known] : types)
    if (known == type) return name;
  throw Error(ExitCode::failure, fmt::format("tensors of type {} cannot be saved", c10::toString(type)));
}

// Finds a name that occurs twice in the header. The JSON parser would keep only the last entry.
class RepeatedName : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string found;

  bool key(std::string& name) override {
    if (depth_ != 1 || names_.insert(name).second) return true;
    found = name;
    return false;
  }
  bool start_object(std::size_t) override { return ++depth_ > 0; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  std::set<std::string> names_;
  int depth_ = 0;
};

using Fail = std::function<void(const std::string& what)>;  // throws

// A tensor as the header describes it: its bytes are [begin, end) of the data.
struct Entry {
  std::uint64_t begin = 0, end = 0;
  std::string name;
  torch::ScalarType type;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;  // size by type and shape
};

Entry read_entry(const std::string& name, const nlohmann::json& json, std::uint64_t file_size, const Fail& fail) {
  const auto require = [&](bool holds, const char* problem) {
    if (!holds) fail(in_quotes(name) + problem);
  };
  require(json.is_object(), " is not described by an object");
  const auto offsets = json.value("data_offsets", nlohmann::json()), shape = json.value("shape", nlohmann::json());
  require(
      offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(),
      " has no data_offsets");
  const auto type = std::find_if(types.begin(), types.end(), [&](const auto& known) {
    return json.value("dtype", nlohmann::json()) == known.first;
  });
  require(type != types.end(), " has an unknown type");
  require(shape.is_array(), " has no shape");
  Entry entry{.begin = offsets[0],
              .end = offsets[1],
              .name = name,
              .type = type->second,
              .bytes = c10::elementSize(type->second)};
  for (const auto& size : shape) {
    require(size.is_number_unsigned(), " has a shape that is not numbers");
    const auto value = size.get<std::uint64_t>();
    require(value <= file_size && !__builtin_mul_overflow(entry.bytes, value, &entry.bytes),
            " is larger than the file");
    entry.shape.push_back(static_cast<std::int64_t>(value));
  }
  return entry;
}

}  // namespace

std::string to_safetensors(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  for (const auto& [name, value] : metadata) header["__metadata__"][name] = value;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t end = offset + tensor.numel() * tensor.element_size();
    header[name] = {
        {"dtype", type_name(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  auto text = header.dump();
  text.append((length_bytes - text.size() % length_bytes) % length_bytes, ' ');  // aligned data can be memory-mapped
  const std::uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), length_bytes);
  bytes.reserve(length_bytes + text.size() + offset);
  bytes += text;
  for (const auto& [name, tensor] : tensors) {
    const auto plain = tensor.detach().to(torch::kCPU).contiguous();
    bytes.append(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  }
  return bytes;
}

NamedTensors from_safetensors(const std::string& bytes, const std::string& source) {
  const Fail fail = [&](const std::string& what) {
    throw Error(ExitCode::failure, fmt::format("{}: not a valid safetensors file: {}", source, what));
  };
  if (bytes.size() < length_bytes) fail("shorter than 8 bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), length_bytes);
  if (length > longest_header || length > bytes.size() - length_bytes)
    fail(fmt::format("a header of {} bytes in a file of {}", length, bytes.size()));
  const auto data = std::string_view(bytes).substr(length_bytes + length);
  const auto text = std::string_view(bytes).substr(length_bytes, length);
  const auto header = parse_json(text);
  if (!header.is_object()) fail("its header is not a JSON object");
  RepeatedName repeated;
  nlohmann::json::sax_parse(text.begin(), text.end(), &repeated);
  if (!repeated.found.empty()) fail(fmt::format("two tensors have the name {}", in_quotes(repeated.found)));
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items())
    if (name != "__metadata__") entries.push_back(read_entry(name, json, bytes.size(), fail));
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  NamedTensors tensors;
  std::uint64_t place = 0;  // tensors lie without gaps
  for (const auto& [begin, end, name, type, shape, size] : entries) {
    if (begin != place || end < begin || end - begin != size || end > data.size())
      fail(fmt::format("{} lies at bytes {} to {}, outside the file or not where its shape says", in_quotes(name),
                       begin, end));
    place = end;
    tensors.emplace_back(name, torch::empty(shape, type));
    if (size > 0) std::memcpy(tensors.back().second.data_ptr(), data.data() + begin, size);
  }
  if (place != data.size()) fail("its size differs from what its header says (truncated?)");
  return tensors;
}

}  // namespace metaformer
