#include "base/zip_writer.h"

#include <zlib.h>

#include "base/error.h"

namespace metaformer {

namespace {

constexpr std::uint32_t in_extra_field = 0xFFFFFFFF;  // the size or place stands there, with 64 bits
constexpr std::uint16_t version = 45;                 // the first with such fields
constexpr std::uint16_t first_of_1980 = 0x21;         // the date of every entry

// Little-endian.
template <class Number>
std::string bytes_of(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
  return bytes;
}

template <class... Numbers>
std::string joined(Numbers... numbers) {
  return (bytes_of(numbers) + ...);
}

std::uint16_t u16(std::size_t number) { return static_cast<std::uint16_t>(number); }

// What the headers of an entry in front of it and in the directory have in common.
std::string description(std::uint32_t checksum, std::size_t name_length, std::size_t extra_length) {
  constexpr std::uint16_t none = 0;
  return joined(version, /*flags=*/none, /*method: stored=*/none, /*time=*/none, first_of_1980, checksum,
                in_extra_field, in_extra_field, u16(name_length), u16(extra_length));
}

// With 64 bits: numbers that the headers leave to it.
template <class... Numbers>
std::string extra_field(Numbers... numbers) {
  const auto values = joined(numbers...);
  return joined(std::uint16_t{1}, u16(values.size())) + values;
}

std::uint32_t checksum_of(std::initializer_list<std::string_view> parts) {
  uLong checksum = crc32_z(0, nullptr, 0);
  for (const auto part : parts) checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(part.data()), part.size());
  return static_cast<std::uint32_t>(checksum);
}

}  // namespace

ZipWriter::ZipWriter(const std::filesystem::path& path) : path_(path), file_(path, std::ios::binary) { write(""); }

void ZipWriter::write(std::string_view bytes) {
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file_) throw Error(ExitCode::failure, path_.string() + ": cannot be written");
  written_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::initializer_list<std::string_view> parts) {
  std::uint64_t size = 0;
  for (const auto part : parts) size += part.size();
  const auto checksum = checksum_of(parts);
  const auto place = written_;
  const auto local = extra_field(size, size), central = extra_field(size, size, place);
  constexpr std::uint32_t local_header = 0x04034B50, directory_header = 0x02014B50;
  constexpr std::uint16_t none = 0;
  write(joined(local_header) + description(checksum, name.size(), local.size()) + name + local);
  for (const auto part : parts) write(part);
  directory_ += joined(directory_header, version) + description(checksum, name.size(), central.size()) +
                joined(/*comment=*/none, /*disk=*/none, /*attributes=*/none, std::uint32_t{0}, in_extra_field) + name +
                central;
  ++entries_;
}

void ZipWriter::finish() {
  constexpr std::uint32_t wide_end = 0x06064B50, locator = 0x07064B50, end = 0x06054B50, first_disk = 0, disks = 1;
  constexpr std::uint64_t rest_of_wide_end = 44;
  constexpr std::uint16_t none = 0, in_wide_end = 0xFFFF;
  const std::uint64_t place = written_, size = directory_.size(), place_of_end = place + size;
  write(directory_);
  write(joined(wide_end, rest_of_wide_end, version, version, first_disk, first_disk, entries_, entries_, size, place));
  write(joined(locator, first_disk, place_of_end, disks));
  write(joined(end, none, none, in_wide_end, in_wide_end, in_extra_field, in_extra_field, none));
  file_.close();
  if (!file_) throw Error(ExitCode::failure, path_.string() + ": cannot be written");
}

}  // namespace metaformer
