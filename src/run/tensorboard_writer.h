#pragma once
// TensorBoard's event format: records of TensorFlow's TFRecord framing around protobuf Event messages.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/files.h"

namespace metaformer {

class TensorBoardWriter {
 public:
  // A new events.out.tfevents.* file in `folder`, which TensorBoard reads after those that are there.
  explicit TensorBoardWriter(const std::filesystem::path& folder);

  // A session starts that writes the events of `step` and later ones: TensorBoard forgets those of earlier sessions.
  // The first session of a folder must be announced, too.
  void start_session(std::int64_t step);

  void add_scalar(std::string_view tag, double value, std::int64_t step);

  // Shown under TEXT, as Markdown.
  void add_text(std::string_view tag, std::string_view markdown, std::int64_t step);

  // A flat object of numbers, strings and booleans, shown under HPARAMS.
  void add_hyper_parameters(const nlohmann::ordered_json& values, std::int64_t step);

  // Writes what was added. Throws Error (exit code 1) for a full disk.
  void flush();

 private:
  void write_summary(const std::string& value, std::int64_t step);
  void write_event(std::uint32_t field, const std::string& content, std::int64_t step);
  void write_record(const std::string& event);
  AppendedFile file_;
  std::string pending_;  // records that are not yet written
};

// CRC-32C (Castagnoli), as used by the record framing.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace metaformer
