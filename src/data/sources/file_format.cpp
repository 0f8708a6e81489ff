#include "data/sources/file_format.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace metaformer {

std::optional<TableFormat> format_by_name(const std::filesystem::path& path) {
  static constexpr std::array<std::pair<std::string_view, TableFormat>, 7> endings = {{{".csv", TableFormat::csv},
                                                                                       {".tsv", TableFormat::tsv},
                                                                                       {".jsonl", TableFormat::jsonl},
                                                                                       {".json", TableFormat::jsonl},
                                                                                       {".ndjson", TableFormat::jsonl},
                                                                                       {".txt", TableFormat::text},
                                                                                       {".text", TableFormat::text}}};
  auto name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (constexpr std::string_view packed = ".gz"; name.ends_with(packed)) name.resize(name.size() - packed.size());
  for (const auto& [ending, format] : endings)
    if (name.ends_with(ending)) return format;
  return std::nullopt;
}

}  // namespace metaformer
