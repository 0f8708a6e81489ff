#include "run/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace metaformer {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;  // as the format's own reader

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

std::optional<torch::ScalarType> find_type(const nlohmann::json& name) {
  for (const auto& [known, type] : types)
    if (name == known) return type;
  return std::nullopt;
}

// Looks for a name that the header has twice: of these the parser keeps the last.
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

class Reader {
 public:
  Reader(const std::string& bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  NamedTensors read() {
    const auto header = read_header();
    NamedTensors tensors;
    std::uint64_t expected_begin = 0;
    for (const auto& [place, name] : places(header))
      tensors.emplace_back(name, read_tensor(name, header[name], place, expected_begin));
    if (data_start_ + expected_begin != bytes_.size()) fail("its size differs from what its header says (truncated?)");
    return tensors;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::failure, fmt::format("{}: not a valid safetensors file: {}", source_, what));
  }

  nlohmann::json read_header() {
    if (bytes_.size() < length_bytes) fail("shorter than 8 bytes");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), length_bytes);
    if (length > longest_header || length > bytes_.size() - length_bytes)
      fail(fmt::format("a header of {} bytes in a file of {}", length, bytes_.size()));
    data_start_ = length_bytes + length;
    const auto* begin = bytes_.data() + length_bytes;
    auto header = parse_json({begin, length});
    if (!header.is_object()) fail("its header is not a JSON object");
    RepeatedName repeated;
    nlohmann::json::sax_parse(begin, begin + length, &repeated);
    if (!repeated.found.empty()) fail(fmt::format("two tensors have the name {}", in_quotes(repeated.found)));
    return header;
  }

  std::vector<std::int64_t> read_shape(const std::string& name, const nlohmann::json& entry,
                                       std::uint64_t element_bytes, std::uint64_t& bytes) const {
    if (!entry.contains("shape") || !entry["shape"].is_array()) fail(in_quotes(name) + " has no shape");
    std::vector<std::int64_t> shape;
    bytes = element_bytes;
    for (const auto& size : entry["shape"]) {
      if (!size.is_number_unsigned()) fail(in_quotes(name) + " has a shape that is not numbers");
      const auto value = size.get<std::uint64_t>();
      if (value > bytes_.size() || __builtin_mul_overflow(bytes, value, &bytes))
        fail(in_quotes(name) + " is larger than the file");
      shape.push_back(static_cast<std::int64_t>(value));
    }
    return shape;
  }

  using Place = std::pair<std::uint64_t, std::uint64_t>;  // first byte and the one behind the last

  // The tensors in the order of their bytes.
  std::vector<std::pair<Place, std::string>> places(const nlohmann::json& header) const {
    std::vector<std::pair<Place, std::string>> places;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      if (!entry.is_object()) fail(in_quotes(name) + " is not described by an object");
      const auto offsets = entry.value("data_offsets", nlohmann::json());
      const bool pair = offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
                        offsets[1].is_number_unsigned();
      if (!pair) fail(in_quotes(name) + " has no data_offsets");
      places.emplace_back(Place{offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()}, name);
    }
    std::sort(places.begin(), places.end());
    return places;
  }

  // Tensors lie without gaps.
  torch::Tensor read_tensor(const std::string& name, const nlohmann::json& entry, const Place& place,
                            std::uint64_t& expected_begin) const {
    const auto type = entry.contains("dtype") ? find_type(entry["dtype"]) : std::nullopt;
    if (!type) fail(in_quotes(name) + " has an unknown type");
    std::uint64_t bytes = 0;
    const auto shape = read_shape(name, entry, c10::elementSize(*type), bytes);
    const auto [begin, end] = place;
    if (begin != expected_begin || end < begin || end - begin != bytes || end > bytes_.size() - data_start_)
      fail(fmt::format("{} lies at bytes {} to {}, outside the file or not where its shape says", in_quotes(name),
                       begin, end));
    expected_begin = end;
    auto tensor = torch::empty(shape, *type);
    if (bytes > 0) std::memcpy(tensor.data_ptr(), bytes_.data() + data_start_ + begin, bytes);
    return tensor;
  }

  const std::string& bytes_;
  const std::string& source_;
  std::size_t data_start_ = 0;
};

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
  text.append((length_bytes - text.size() % length_bytes) % length_bytes, ' ');  // aligned data can be mapped
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
  return Reader(bytes, source).read();
}

}  // namespace metaformer
