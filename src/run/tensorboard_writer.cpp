#include "run/tensorboard_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/crc.hpp>
#include <charconv>
#include <chrono>
#include <utility>

namespace metaformer {

namespace {

// Protobuf wire format (https://protobuf.dev/programming-guides/encoding): a key of field number and wire type, a
// value.
enum WireType : std::uint32_t { varint = 0, fixed64 = 1, length_delimited = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <class T>
void put_fixed(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A field of a message.
void put(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_varint(out, field << 3 | length_delimited);
  put_varint(out, bytes.size());
  out += bytes;
}

void put(std::string& out, std::uint32_t field, std::uint64_t value) {
  put_varint(out, field << 3 | varint);
  put_varint(out, value);
}

void put(std::string& out, std::uint32_t field, double value) {
  put_varint(out, field << 3 | fixed64);
  put_fixed(out, value);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// tensorflow/core/util/event.proto: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string event_header() {
  std::string event;
  put(event, 1, seconds_now());
  return event;
}

// summary.proto, Value: tag = 1, tensor = 8, metadata = 9; SummaryMetadata.plugin_data = 1: plugin_name = 1,
// content = 2.
std::string tensor_value(std::string_view tag, std::string_view plugin, std::string_view content,
                         std::string_view tensor) {
  std::string plugin_data, metadata, value;
  put(plugin_data, 1, plugin);
  put(plugin_data, 2, content);
  put(metadata, 1, plugin_data);
  put(value, 1, tag);
  put(value, 8, tensor);
  put(value, 9, metadata);
  return value;
}

// google/protobuf/struct.proto, Value: number_value = 2, string_value = 3, bool_value = 4.
std::string protobuf_value(const nlohmann::ordered_json& value) {
  std::string out;
  if (value.is_boolean()) {
    put(out, 4, std::uint64_t{value.get<bool>()});
  } else if (value.is_number()) {
    put(out, 2, value.get<double>());
  } else {
    put(out, 3, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return out;
}

// Masked so that a checksum of data that holds checksums stays strong (tensorflow/core/lib/hash/crc32c.h).
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8U; }

// TensorBoard reads the files in the order of their names, which begin with the time: also after a start within the
// same second, or by a clock that is behind.
std::string new_name(const std::filesystem::path& folder) {
  constexpr std::string_view start = "events.out.tfevents.";
  std::string last;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (auto name = entry.path().filename().string(); name.starts_with(start)) last = std::max(last, name);
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  auto seconds = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  const auto name = [&] { return fmt::format("{}{:010}.{}.{}", start, seconds, host.data(), ::getpid()); };
  constexpr std::size_t digits = 10;
  std::int64_t last_seconds = 0;
  const auto* first = last.data() + std::min(last.size(), start.size());
  std::from_chars(first, last.data() + std::min(last.size(), start.size() + digits), last_seconds);
  if (!last.empty() && name() <= last) seconds = last_seconds + 1;
  return name();
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, /*ReflectIn=*/true, /*ReflectRem=*/true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder) : file_(folder / new_name(folder)) {
  auto event = event_header();
  put(event, 3, "brain.Event:2");
  write_record(event);
}

void TensorBoardWriter::start_session(std::int64_t step) {
  std::string session;
  put(session, 1, std::uint64_t{1});  // SessionLog.status: START
  write_event(7, session, step);
}

void TensorBoardWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
  std::string entry;
  put(entry, 1, tag);
  put_varint(entry, 2 << 3 | fixed32);  // Value.simple_value
  put_fixed(entry, static_cast<float>(value));
  write_summary(entry, step);
}

void TensorBoardWriter::add_text(std::string_view tag, std::string_view markdown, std::int64_t step) {
  std::string tensor;  // tensorflow/core/framework/tensor.proto: dtype = 1, tensor_shape = 2, string_val = 8
  put(tensor, 1, std::uint64_t{7});  // DT_STRING
  put(tensor, 2, "");                // a scalar
  put(tensor, 8, markdown);
  write_summary(tensor_value(tag, "text", "", tensor), step);
}

void TensorBoardWriter::add_hyper_parameters(const nlohmann::ordered_json& values, std::int64_t step) {
  std::string session;  // tensorboard/plugins/hparams/plugin_data.proto: SessionStartInfo
  for (const auto& [name, value] : values.items()) {
    std::string entry;
    put(entry, 1, name);
    put(entry, 2, protobuf_value(value));
    put(session, 1, entry);
  }
  put(session, 5, seconds_now());  // start_time_secs
  std::string data;                // HParamsPluginData: version = 1 (0), session_start_info = 3
  put(data, 3, session);
  std::string tensor;                // the plugin reads none, but TensorBoard's storage expects one
  put(tensor, 1, std::uint64_t{1});  // DT_FLOAT
  put(tensor, 2, "");
  put(tensor, 4, std::string(sizeof(float), '\0'));  // tensor_content
  write_summary(tensor_value("_hparams_/session_start_info", "hparams", data, tensor), step);
}

// tensorflow/core/framework/summary.proto: Summary.value = 1.
void TensorBoardWriter::write_summary(const std::string& value, std::int64_t step) {
  std::string summary;
  put(summary, 1, value);
  write_event(5, summary, step);
}

void TensorBoardWriter::write_event(std::uint32_t field, const std::string& content, std::int64_t step) {
  auto event = event_header();
  put(event, 2, static_cast<std::uint64_t>(step));
  put(event, field, content);
  write_record(event);
}

void TensorBoardWriter::write_record(const std::string& event) {
  std::string length;
  put_fixed(length, static_cast<std::uint64_t>(event.size()));
  std::string record = length;
  put_fixed(record, masked_crc(length));
  record += event;
  put_fixed(record, masked_crc(event));
  pending_ += record;
}

void TensorBoardWriter::flush() { file_.write(std::exchange(pending_, {})); }

}  // namespace metaformer
