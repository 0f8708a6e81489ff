#include "run/metrics_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/crc.hpp>
#include <chrono>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "config/writer.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

// Protobuf wire format (https://protobuf.dev/programming-guides/encoding): a key, made of field number and wire type,
// then the value.
enum WireType : std::uint32_t { varint = 0, fixed64 = 1, length_delimited = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <class T>
void put_fixed(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Appends a field to a message.
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
std::string protobuf_value(const Json& value) {
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

// CRC-32C (Castagnoli).
std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, /*ReflectIn=*/true, /*ReflectRem=*/true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

// Masked so that a checksum of data that holds checksums stays strong (tensorflow/core/lib/hash/crc32c.h).
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8U; }

// TensorBoard reads the files in the order of their names, which begin with the time. The new name comes after the
// existing ones, even after a restart within one second or with a clock that was set back.
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
  if (!last.empty() && name() <= last)
    seconds = as_number<std::int64_t>(last.substr(start.size(), digits)).value_or(0) + 1;
  return name();
}

bool is_kept(const Json& line, const LogPosition& position) {
  const auto name = line.value("split", Json());
  const auto split = name.is_string() ? name.get<std::string>() : "";
  const auto step = line["step"].get<std::int64_t>();
  if (split == "rollback") return line.value("rollbacks", Json()) <= position.rollbacks;
  if (step > position.step || split == "test") return false;  // the test belongs to the end of a run, which repeats it
  if (split == "validation" && position.past_end) return false;
  const bool of_evaluation = split.starts_with("validation") || split == "train_estimate";
  return step < position.step || position.evaluated || !of_evaluation;
}

struct KeptLines {
  std::string text;
  std::int64_t last_step = 0;                                             // step of the last kept line
  std::int64_t first_dropped = std::numeric_limits<std::int64_t>::max();  // the lowest step of the dropped lines
};

// Calls use(line, line as JSON) for every line.
template <class Use>
void for_each_line(const std::string& text, const Use& use) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) use(line, parse_json<Json>(line));
}

// A half-written last line is dropped too.
KeptLines kept_lines(const std::filesystem::path& file, const LogPosition& position) {
  constexpr std::uintmax_t largest = std::uintmax_t{4} << 30;
  KeptLines kept;
  if (!std::filesystem::exists(file)) return kept;
  for_each_line(read_file(file, largest, ExitCode::failure), [&](const std::string& line, const Json& json) {
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return;
    const auto step = json["step"].get<std::int64_t>();
    if (is_kept(json, position)) {
      kept.text += line + "\n";
      kept.last_step = step;
    } else {
      kept.first_dropped = std::min(kept.first_dropped, step);
    }
  });
  return kept;
}

// Flattens {"model": {"layers": 4}} to {"model.layers": 4}.
void flatten(const Json& values, const std::string& prefix, Json& flat) {
  for (const auto& [name, value] : values.items()) {
    if (value.is_object()) {
      flatten(value, prefix + name + ".", flat);
    } else if (!value.is_null()) {
      flat[prefix + name] = value;
    }
  }
}

}  // namespace

// TensorBoard's event format: records of TensorFlow's TFRecord framing around protobuf Event messages.
class TensorBoardWriter {
 public:
  // Creates a new events.out.tfevents.* file in `folder`, which TensorBoard reads after the existing ones.
  explicit TensorBoardWriter(const std::filesystem::path& folder) : file_(folder / new_name(folder)) {
    auto event = event_header();
    put(event, 3, "brain.Event:2");
    write_record(event);
  }

  // Announces a session that writes events from `step` on: TensorBoard forgets the events of earlier sessions from
  // `step` on. The first session of a folder must be announced, too.
  void start_session(std::int64_t step) {
    std::string session;
    put(session, 1, std::uint64_t{1});  // SessionLog.status: START
    write_event(7, session, step);
  }

  void add_scalar(std::string_view tag, double value, std::int64_t step) {
    std::string entry;
    put(entry, 1, tag);
    put_varint(entry, 2 << 3 | fixed32);  // Value.simple_value
    put_fixed(entry, static_cast<float>(value));
    write_summary(entry, step);
  }

  // TensorBoard shows the text under TEXT, as Markdown, where indented lines stay as they are.
  void add_text(std::string_view tag, const std::string& text, std::int64_t step) {
    std::istringstream stream(text);
    std::string markdown;
    for (std::string line; std::getline(stream, line);) markdown += "    " + line + "\n";
    std::string tensor;  // tensorflow/core/framework/tensor.proto: dtype = 1, tensor_shape = 2, string_val = 8
    put(tensor, 1, std::uint64_t{7});  // DT_STRING
    put(tensor, 2, "");                // a scalar
    put(tensor, 8, markdown);
    write_summary(tensor_value(tag, "text", "", tensor), step);
  }

  // TensorBoard shows `values`, a flat object of numbers, strings and booleans, under HPARAMS.
  void add_hyper_parameters(const Json& values, std::int64_t step) {
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
    std::string tensor;                // the plugin reads no tensor, but TensorBoard's storage expects one
    put(tensor, 1, std::uint64_t{1});  // DT_FLOAT
    put(tensor, 2, "");
    put(tensor, 4, std::string(sizeof(float), '\0'));  // tensor_content
    write_summary(tensor_value("_hparams_/session_start_info", "hparams", data, tensor), step);
  }

  // Writes the added records. Throws Error (exit code 1) if the disk is full.
  void flush() { file_.write(std::exchange(pending_, {})); }

 private:
  // tensorflow/core/framework/summary.proto: Summary.value = 1.
  void write_summary(const std::string& value, std::int64_t step) {
    std::string summary;
    put(summary, 1, value);
    write_event(5, summary, step);
  }

  void write_event(std::uint32_t field, const std::string& content, std::int64_t step) {
    auto event = event_header();
    put(event, 2, static_cast<std::uint64_t>(step));
    put(event, field, content);
    write_record(event);
  }

  void write_record(const std::string& event) {
    std::string length;
    put_fixed(length, static_cast<std::uint64_t>(event.size()));
    std::string record = length;
    put_fixed(record, masked_crc(length));
    record += event;
    put_fixed(record, masked_crc(event));
    pending_ += record;
  }

  AppendedFile file_;
  std::string pending_;  // records that are not yet written
};

MetricsLog::MetricsLog() = default;
MetricsLog::~MetricsLog() = default;

MetricsLog::MetricsLog(const RunDirectory& run, const LogPosition& position)
    : path_(run.metrics_file()), samples_path_(run.samples_file()), first_step_(position.step) {
  tensorboard_ = std::make_unique<TensorBoardWriter>(run.path());
  const auto metrics = kept_lines(path_, position), samples = kept_lines(samples_path_, position);
  write_file_atomically(path_, metrics.text);
  file_.emplace(path_);
  if (std::filesystem::exists(samples_path_)) write_file_atomically(samples_path_, samples.text);
  last_sampled_step_ = samples.last_step;
  // TensorBoard can only forget all events from a step on, so kept lines from that step on are written again.
  const auto forgotten = std::min({position.step, metrics.first_dropped, samples.first_dropped});
  tensorboard_->start_session(forgotten);
  for_each_line(metrics.text, [&](const std::string&, Json line) {
    const std::int64_t step = line["step"];
    const auto split = line.value("split", Json());
    line.erase("step");
    if (step >= forgotten && split.is_string()) add_scalars(split, line, step);
  });
  for_each_line(samples.text, [&](const std::string&, const Json& line) {
    if (const std::int64_t step = line["step"]; step >= forgotten) add_sample(line, step);
  });
  tensorboard_->flush();
}

void MetricsLog::write_config(const ExperimentConfig& config) {
  if (!tensorboard_) return;
  tensorboard_->add_text("config", config_to_yaml(config), first_step_);
  Json values;
  flatten(config_to_json(config), "", values);
  tensorboard_->add_hyper_parameters(values, first_step_);
  tensorboard_->flush();
}

void MetricsLog::sync() const {
  if (!tensorboard_) return;
  file_->sync();
  if (samples_file_) samples_file_->sync();
}

void MetricsLog::write(std::int64_t step, const std::string& split, const Json& measures) {
  if (!tensorboard_) return;
  Json line = {{"step", step}, {"split", split}};
  line.update(measures);
  file_->write(line.dump() + "\n");
  add_scalars(split, measures, step);
  tensorboard_->flush();
}

void MetricsLog::write_sample(std::int64_t step, const Json& sample) {
  if (!tensorboard_) return;
  Json line = {{"step", step}};
  line.update(sample);
  if (!samples_file_) samples_file_.emplace(samples_path_);
  samples_file_->write(json_text(line) + "\n");
  last_sampled_step_ = step;
  add_sample(sample, step);
  tensorboard_->flush();
}

void MetricsLog::add_sample(const Json& sample, std::int64_t step) {
  if (const auto text = sample.value("text", Json()); text.is_string())
    tensorboard_->add_text("sample", text.get<std::string>(), step);
}

void MetricsLog::add_scalars(const std::string& prefix, const Json& measures, std::int64_t step) {
  for (const auto& [name, value] : measures.items()) {
    if (value.is_number()) tensorboard_->add_scalar(prefix + "/" + name, value.get<double>(), step);
    if (value.is_object()) add_scalars(prefix + "/" + name, value, step);
  }
}

}  // namespace metaformer
