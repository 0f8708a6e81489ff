#include "data/sources/parallel_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "data/sources/table_file.h"

namespace metaformer {

namespace {

struct Lines {
  std::string path, sha256;
  std::vector<std::string> lines;

  std::string place(std::size_t index) const { return fmt::format("{}:{}", path, index + 1); }
};

// Why a line is no text, or "".
std::string defect_of(std::string_view line) {
  if (line.size() > longest_pair_text)
    return fmt::format("the line has {} bytes; at most {} make sense", line.size(), longest_pair_text);
  if (line.find('\0') != std::string_view::npos) return "the line has NUL bytes; a text is UTF-8";
  if (auto why = utf8_defect(line); !why.empty()) return "the line is " + why + "; convert the file to UTF-8";
  return "";
}

Lines read_lines(const std::filesystem::path& path) {
  Lines read{.path = path.string(), .sha256 = {}, .lines = {}};
  const auto content = read_packed_text(path, read.sha256);
  for (std::string_view rest = content; !rest.empty();) {
    throw_if_stopped();
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto why = defect_of(line); !why.empty())
      throw Error(ExitCode::data, fmt::format("{}: {}", read.place(read.lines.size()), why));
    read.lines.emplace_back(line);
  }
  return read;
}

void check_counts(const Lines& source, const Lines& target) {
  const auto sources = source.lines.size(), targets = target.lines.size();
  if (sources != targets)
    throw Error(ExitCode::data, fmt::format("{} has {} lines and {} has {}, but each line needs its partner in the "
                                            "other file: line {} of {} has none",
                                            source.path, sources, target.path, targets, 1 + std::min(sources, targets),
                                            sources > targets ? source.path : target.path));
  if (sources == 0) throw Error(ExitCode::data, fmt::format("{} and {} have no lines", source.path, target.path));
}

void refuse_blank(const Lines& read, std::size_t index, const Lines& partner) {
  if (is_blank(read.lines[index]))
    throw Error(ExitCode::data, fmt::format("{}: the line is empty; its partner {} needs a text here, or must go too",
                                            read.place(index), partner.place(index)));
}

}  // namespace

LinePairs read_line_pairs(const std::filesystem::path& source_path, const std::filesystem::path& target_path) {
  auto source = read_lines(source_path), target = read_lines(target_path);
  check_counts(source, target);
  LinePairs read{.pairs = {}, .source_sha256 = source.sha256, .target_sha256 = target.sha256};
  for (std::size_t index = 0; index < source.lines.size(); ++index) {
    refuse_blank(source, index, target);
    refuse_blank(target, index, source);
    read.pairs.push_back(
        {std::move(source.lines[index]), std::move(target.lines[index]), source.place(index), target.place(index)});
  }
  return read;
}

}  // namespace metaformer
