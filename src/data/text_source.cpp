#include "data/text_source.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "base/archive.h"
#include "base/digest.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/rows.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/tables.h"

namespace metaformer {

namespace fs = std::filesystem;

namespace {

constexpr auto text_endings = ".txt, .text, .jsonl, .json or .ndjson, compressed (.gz, .zst) or not, or .parquet";

std::optional<TableFormat> format_of(const fs::path& file, const TextDataConfig& config) {
  return config.format == TableFormat::automatic ? format_by_name(file) : config.format;
}

bool is_parquet(const fs::path& file, const TextDataConfig& config) {
  return config.format == TableFormat::automatic && file.extension() == ".parquet";
}

// The files below a folder whose format is one of texts, in the order of their paths.
std::vector<fs::path> list_folder(const fs::path& folder, const TextDataConfig& config, bool warns) {
  std::vector<fs::path> files, passed_over;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const bool is_hidden = entry->path().filename().string().starts_with('.');
    if (is_hidden) entry.disable_recursion_pending();
    std::error_code ignored;
    if (!is_hidden && fs::is_directory(entry->symlink_status(ignored))) continue;
    const auto format = format_of(entry->path(), config);
    const bool is_text =
        format == TableFormat::text || format == TableFormat::jsonl || is_parquet(entry->path(), config);
    (!is_hidden && is_text && entry->is_regular_file() ? files : passed_over).push_back(entry->path());
  }
  if (error) fail_data("{}: cannot be read: {}", folder.string(), error.message());
  if (files.empty())
    fail_data("{}: holds no texts: no name ends with {}; data.format text or jsonl takes any name", folder.string(),
              text_endings);
  if (warns && !passed_over.empty())
    log::warning("{}: passes over {} of {} files, which are hidden or do not end with {}; the first found is {}",
                 folder.string(), passed_over.size(), passed_over.size() + files.size(), text_endings,
                 passed_over.front().string());
  std::ranges::sort(files, {}, &fs::path::native);
  return files;
}

// Makes documents of the pieces of files.
class TextReader {
 public:
  TextReader(const TextDataConfig& config, const UsePiece& use, std::uintmax_t most_bytes)
      : config_(config), use_(use), most_bytes_(most_bytes) {}

  // Returns the digest of the file before unpacking; "" if the reader is full.
  std::string read(const fs::path& path) {
    UnpackedFile file(path);
    if (is_parquet(path, config_)) {
      read_parquet(path.string());
      while (!is_full() && !file.next().empty()) continue;  // for the digest
    } else if (format_of(path, config_) == TableFormat::jsonl) {
      read_json_lines(file, path.string());
    } else {
      read_plain_text(file, path.string());
    }
    return is_full() ? "" : file.sha256();
  }

  bool is_full() const { return text_bytes_ >= most_bytes_; }
  std::uintmax_t unpacked_bytes() const { return unpacked_bytes_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t empty() const { return empty_; }
  std::int64_t malformed() const { return malformed_; }
  const std::string& first_defect() const { return first_defect_; }
  bool has_json_lines() const { return has_json_lines_; }

 private:
  struct Full {};  // thrown through the reader of Parquet files

  void give(std::string_view piece, bool starts_document) {
    text_bytes_ += piece.size();
    use_(piece, starts_document);
  }

  void begin_document(std::string_view first_piece) {
    if (documents_++ > 0) give("\n", false);
    give(first_piece, true);
  }

  // The next piece of a file; "" at its end, or if the reader is full.
  std::string_view next(UnpackedFile& file) {
    const auto piece = is_full() ? std::string_view() : file.next();
    unpacked_bytes_ += piece.size();
    return piece;
  }

  void read_plain_text(UnpackedFile& file, const std::string& name) {
    const bool checks_utf8 = !is<ByteTokenizerOptions>(config_.tokenizer);
    std::string rest;  // the start of a character
    std::size_t bytes = 0, lines = 0;
    bool is_first = true, has_begun = false;
    for (auto raw = next(file); !raw.empty() || !rest.empty(); raw = next(file)) {
      const bool is_last = raw.empty();
      rest += raw;
      if (is_first && rest.size() < 3 && !is_last) continue;  // perhaps a byte order mark
      if (is_first) bytes = rest.size() - without_byte_order_mark(rest).size();
      std::string_view piece = std::string_view(rest).substr(std::exchange(is_first, false) ? bytes : 0);
      if (!is_last) piece = whole_characters(piece);
      if (checks_utf8) {
        require_utf8(piece, name, bytes, lines);
        lines += static_cast<std::size_t>(std::ranges::count(piece, '\n'));
      }
      if (!piece.empty()) {
        has_begun ? give(piece, false) : begin_document(piece);
        has_begun = true;
      }
      bytes += piece.size();
      rest.erase(0, static_cast<std::size_t>(piece.data() + piece.size() - rest.data()));
      if (is_last || is_full()) break;
    }
    if (!has_begun) ++empty_;
  }

  // Without the bytes of a character that is cut off at the end. Of bytes that are not valid UTF-8 at most three are
  // left out.
  static std::string_view whole_characters(std::string_view text) {
    std::size_t cut = text.size(), back = 0;
    while (cut > 0 && back < 3 && (static_cast<unsigned char>(text[cut - 1]) & 0xC0) == 0x80) --cut, ++back;
    if (cut == 0) return text;
    const auto lead = static_cast<unsigned char>(text[cut - 1]);
    const std::size_t needed = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return needed > back + 1 ? text.substr(0, cut - 1) : text;
  }

  void read_parquet(const std::string& path) {
    using Read = const char* (*)(const char* path, const char* column, void (*use)(void*, const char*, std::size_t),
                                 void* context);
    static void* const library = open_own_library("libmetaformer_parquet.so");
    if (library == nullptr)
      fail_data(
          "{}: Parquet files need Arrow's library, with which this program was not built (docs/data.md); convert it "
          "to JSON lines",
          path);
    static const auto read = reinterpret_cast<Read>(dlsym(library, "metaformer_read_parquet"));
    has_json_lines_ = true;
    const auto use = [](void* context, const char* text, std::size_t size) {
      auto& reader = *static_cast<TextReader*>(context);
      throw_if_stopped();
      if (reader.is_full()) throw Full();
      reader.unpacked_bytes_ += size;
      size == 0 ? void(++reader.empty_) : reader.begin_document({text, size});
    };
    try {
      const std::string problem = read(path.c_str(), config_.text_field.c_str(), use, this);
      if (!problem.empty()) fail_data("{}: {}", path, problem);
    } catch (const Full&) {
    }
  }

  void read_json_lines(UnpackedFile& file, const std::string& name) {
    has_json_lines_ = true;
    const auto refuse = [&](std::int64_t line, const std::string& why) {
      if (malformed_++ == 0) first_defect_ = fmt::format("{}:{}: {}", name, line, why);
    };
    const auto use = [&](const std::vector<nlohmann::json*>& members, std::int64_t line) {
      const auto& text = *members.front();
      if (const auto why = defect_of_text_member(text, config_.text_field); !why.empty()) return refuse(line, why);
      const auto& content = text.get_ref<const std::string&>();
      content.empty() ? void(++empty_) : begin_document(content);
    };
    JsonLines lines({config_.text_field}, name, use, refuse);
    LineSplitter splitter([&](std::string_view line, std::size_t size) { lines.add(line, size); },
                          JsonLines::longest_line);
    for (auto piece = next(file); !piece.empty(); piece = next(file)) splitter.add(piece);
    if (is_full()) return;
    splitter.finish();
    lines.finish();
  }

  const TextDataConfig& config_;
  const UsePiece& use_;
  std::uintmax_t most_bytes_, text_bytes_ = 0, unpacked_bytes_ = 0;
  std::int64_t documents_ = 0, empty_ = 0, malformed_ = 0;
  std::string first_defect_;
  bool has_json_lines_ = false;
};

}  // namespace

std::vector<fs::path> list_text_files(const std::vector<fs::path>& paths, const TextDataConfig& config) {
  std::vector<fs::path> files;
  for (const auto& path : paths) {
    const auto own = is_folder(path) ? list_folder(path, config, /*warns=*/false) : std::vector{path};
    files.insert(files.end(), own.begin(), own.end());
  }
  return files;
}

std::uintmax_t estimate_unpacked_bytes(const std::vector<fs::path>& files) {
  std::uintmax_t bytes = 0;
  for (const auto& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (!error) bytes += file.extension() == ".gz" || file.extension() == ".zst" ? 4 * size : size;
  }
  return bytes;
}

TextSummary read_texts(const std::vector<fs::path>& paths, const TextDataConfig& config, const UsePiece& use,
                       std::uintmax_t most_bytes) {
  TextReader reader(config, use, most_bytes);
  auto descriptions = nlohmann::ordered_json::array();
  std::size_t all_files = 0;
  for (const auto& path : paths) {
    const bool is_whole_folder = is_folder(path);
    const auto files = is_whole_folder ? list_folder(path, config, /*warns=*/true) : std::vector{path};
    std::string digests;  // of each file before unpacking; in folders that of its name before it
    for (const auto& file : files) {
      throw_if_stopped();
      if (reader.is_full()) break;
      const auto digest = reader.read(file);
      digests += (is_whole_folder ? sha256(file.lexically_relative(path).generic_string()) : "") + digest;
    }
    descriptions.push_back({{"path", path.string()}, {"sha256", is_whole_folder ? sha256(digests) : digests}});
    if (is_whole_folder) descriptions.back()["files"] = files.size();
    all_files += files.size();
  }
  const auto documents = reader.documents();
  const auto name = paths.front().string();
  if (reader.empty() > 0 && documents > 0)
    log::info("{}: {} of {} documents are empty and left out", name, reader.empty(), reader.empty() + documents);
  report_malformed(name, static_cast<std::size_t>(reader.malformed()),
                   static_cast<std::size_t>(reader.malformed() + reader.empty() + documents), reader.first_defect(),
                   "documents", config.malformed_limit);
  if (documents == 0) fail_data("{}: the corpus is empty", name);
  TextSummary summary{.description = descriptions.size() == 1 ? std::move(descriptions[0]) : nlohmann::ordered_json(),
                      .documents = documents,
                      .has_json_lines = reader.has_json_lines(),
                      .is_one_text = all_files == 1 && !is_folder(paths.front()) && !reader.has_json_lines(),
                      .malformed = reader.malformed(),
                      .empty = reader.empty(),
                      .unpacked_bytes = reader.unpacked_bytes(),
                      .is_whole = !reader.is_full()};
  if (paths.size() > 1) {
    std::string digests;
    for (const auto& of_path : descriptions) digests += of_path["sha256"].get<std::string>();
    summary.description = {{"sha256", sha256(digests)}, {"sources", std::move(descriptions)}};
  }
  if (!summary.is_one_text) summary.description["documents"] = documents;
  if (summary.has_json_lines) summary.description["malformed"] = reader.malformed();
  return summary;
}

}  // namespace metaformer
