#include "data/sources/text_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/gzip.h"
#include "base/json_lines.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "data/sources/file_format.h"
#include "data/sources/imdb_files.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t most_bytes = std::uintmax_t{16} << 30;

class TextReader {
 public:
  TextReader(const fs::path& path, const TextDataConfig& config) : path_(path), config_(config) {}

  TextFiles read() {
    const bool is_whole_folder = is_folder(path_);
    if (is_whole_folder) {
      for (const auto& file : list_folder()) add_file(file);
    } else {
      add_file(path_);
    }
    report_malformed();
    if (files_.text.empty()) throw Error(ExitCode::data, path_.string() + ": the corpus is empty");
    files_.is_one_text = !is_whole_folder && !files_.has_json_lines;
    files_.description = describe(is_whole_folder);
    return std::move(files_);
  }

 private:
  bool is_jsonl(const fs::path& file) const {
    return (config_.format == TableFormat::automatic ? format_by_name(file) : config_.format) == TableFormat::jsonl;
  }

  std::vector<fs::path> list_folder() const;
  bool is_wanted(const fs::directory_entry& entry) const;
  void add_file(const fs::path& file);
  void add_json_lines(std::string_view content, const fs::path& file);
  void add_document(std::string&& text);
  void report_malformed() const;
  nlohmann::ordered_json describe(bool is_whole_folder) const;

  const fs::path& path_;
  const TextDataConfig& config_;
  TextFiles files_;
  std::vector<std::pair<std::string, std::string>> digests_;  // name below path_, SHA-256 of the file as it lies there
  std::uintmax_t bytes_ = 0;
  std::size_t documents_ = 0, empty_ = 0, malformed_ = 0;
  std::string first_defect_;
};

bool TextReader::is_wanted(const fs::directory_entry& entry) const {
  if (!entry.is_regular_file()) return false;
  if (config_.format != TableFormat::automatic) return true;
  const auto format = format_by_name(entry.path());
  return format == TableFormat::text || format == TableFormat::jsonl;
}

std::vector<fs::path> TextReader::list_folder() const {
  std::vector<fs::path> files;
  std::size_t passed_over = 0;
  std::string first;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
    const bool is_hidden = entry->path().filename().string().starts_with('.');
    if (is_hidden) entry.disable_recursion_pending();
    std::error_code ignored;
    if (!is_hidden && fs::is_directory(entry->symlink_status(ignored))) continue;
    if (!is_hidden && is_wanted(*entry)) {
      files.push_back(entry->path());
    } else if (passed_over++ == 0) {
      first = entry->path().string();
    }
  }
  if (error) throw Error(ExitCode::data, fmt::format("{}: cannot be read: {}", path_.string(), error.message()));
  constexpr auto endings = ".txt, .text, .jsonl, .json or .ndjson, gzipped or not";
  if (files.empty())
    throw Error(ExitCode::data,
                fmt::format("{}: holds no texts: names are expected to end with {}; data.format text or "
                            "jsonl takes files of any name",
                            path_.string(), endings));
  if (passed_over > 0)
    log::warning("{}: passes over {} of {} files, which are hidden or do not end with {}; the first found is {}",
                 path_.string(), passed_over, passed_over + files.size(), endings, first);
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.native() < b.native(); });
  return files;
}

void TextReader::add_file(const fs::path& file) {
  throw_if_stopped();
  auto content = read_file(file, most_bytes - bytes_, ExitCode::data);
  digests_.emplace_back(file.lexically_relative(path_).generic_string(), sha256(content));
  if (is_gzip(content)) content = unpack_gzip(content, most_bytes - bytes_, file.string());
  drop_byte_order_mark(content);
  bytes_ += std::min<std::uintmax_t>(content.size(), most_bytes - bytes_);
  if (is_jsonl(file)) return add_json_lines(content, file);
  if (!std::holds_alternative<ByteTokenizerOptions>(config_.tokenizer)) require_utf8(content, file.string());
  add_document(std::move(content));
}

void TextReader::add_json_lines(std::string_view content, const fs::path& file) {
  files_.has_json_lines = true;
  const auto refuse = [&](std::int64_t line, const std::string& why) {
    if (malformed_++ == 0) first_defect_ = fmt::format("{}:{}: {}", file.string(), line, why);
  };
  const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
    auto& text = *members.front();
    if (const auto why = defect_of_text_member(text, config_.text_field); !why.empty()) return refuse(line, why);
    add_document(std::move(text.get_ref<std::string&>()));
  };
  for_each_json_object(content, {config_.text_field}, file.string(), use, refuse);
}

void TextReader::add_document(std::string&& text) {
  if (text.empty()) {
    ++empty_;
    return;
  }
  if (documents_++ > 0) files_.text += '\n';
  files_.document_starts.push_back(files_.text.size());
  documents_ == 1 ? void(files_.text = std::move(text)) : void(files_.text += text);
}

void TextReader::report_malformed() const {
  if (empty_ > 0 && documents_ > 0)
    log::info("{}: {} of {} documents are empty and left out", path_.string(), empty_, empty_ + documents_);
  if (malformed_ == 0) return;
  const auto all = malformed_ + empty_ + documents_;
  if (static_cast<double>(malformed_) / static_cast<double>(all) > config_.malformed_limit)
    throw Error(ExitCode::data, fmt::format("{} ({} of {} documents are malformed; data.malformed_limit allows {})",
                                            first_defect_, malformed_, all, config_.malformed_limit));
  log::warning("{}: {} of {} documents are malformed and left out; the first is {}", path_.string(), malformed_, all,
               first_defect_);
}

nlohmann::ordered_json TextReader::describe(bool is_whole_folder) const {
  auto digest = digests_.front().second;
  if (is_whole_folder) {
    std::string all;
    for (const auto& [name, sum] : digests_) all += sha256(name) + sum;
    digest = sha256(all);
  }
  nlohmann::ordered_json description = {{"path", path_.string()}, {"sha256", digest}};
  if (is_whole_folder) description["files"] = digests_.size();
  if (!files_.is_one_text) description["documents"] = documents_;
  if (files_.has_json_lines) description["malformed"] = malformed_;
  return description;
}

}  // namespace

TextFiles read_text_files(const fs::path& path, const TextDataConfig& config) {
  return TextReader(path, config).read();
}

}  // namespace metaformer
