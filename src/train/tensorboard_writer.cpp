#include "train/tensorboard_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>

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

void put_key(std::string& out, std::uint32_t field, WireType type) { put_varint(out, field << 3 | type); }

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_key(out, field, length_delimited);
  put_varint(out, bytes.size());
  out += bytes;
}

// tensorflow/core/util/event.proto: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string event_header() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_key(event, 1, fixed64);
  put_fixed(event, now.count());
  return event;
}

// Masked so that a checksum of data that holds checksums stays strong (tensorflow/core/lib/hash/crc32c.h).
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8U; }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      entries[i] = i;
      for (int bit = 0; bit < 8; ++bit) entries[i] = entries[i] >> 1 ^ (entries[i] & 1 ? 0x82f63b78U : 0);
    }
    return entries;
  }();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto seconds = std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1);
  file_.open(folder / fmt::format("events.out.tfevents.{}.{}.{}", seconds, host.data(), ::getpid()), std::ios::binary);
  auto event = event_header();
  put_bytes(event, 3, "brain.Event:2");
  write_record(event);
}

void TensorBoardWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
  // tensorflow/core/framework/summary.proto: Summary.value = 1; Value.tag = 1, Value.simple_value = 2.
  std::string entry;
  put_bytes(entry, 1, tag);
  put_key(entry, 2, fixed32);
  put_fixed(entry, static_cast<float>(value));
  std::string summary;
  put_bytes(summary, 1, entry);
  auto event = event_header();
  put_key(event, 2, varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, 5, summary);
  write_record(event);
}

void TensorBoardWriter::write_record(const std::string& event) {
  std::string length;
  put_fixed(length, static_cast<std::uint64_t>(event.size()));
  std::string record = length;
  put_fixed(record, masked_crc(length));
  record += event;
  put_fixed(record, masked_crc(event));
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
}

}  // namespace metaformer
