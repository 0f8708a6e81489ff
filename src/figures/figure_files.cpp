#include "figures/figure_files.h"

#include <fmt/format.h>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace metaformer::figures {

namespace {

std::string file_name(std::string name) {
  constexpr std::string_view others = ".-_";
  for (auto& letter : name) {
    const bool kept = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                      (letter >= '0' && letter <= '9') || others.find(letter) != others.npos;
    if (!kept) letter = '_';
  }
  constexpr std::size_t most = 120, end = 50;  // a file system takes 255 bytes
  if (name.size() > most) name = name.substr(0, most - end) + ".." + name.substr(name.size() - end);
  return name;
}

}  // namespace

FigureFolder::FigureFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw Error(ExitCode::failure, fmt::format("{}: {}", folder_.string(), error.message()));
}

void FigureFolder::write(const std::string& name, const Figure& figure) {
  auto stem = file_name(name);
  for (int copy = 2; !names_.insert(stem).second; ++copy) stem = fmt::format("{}-{}", file_name(name), copy);
  const auto svg = folder_ / (stem + ".svg"), pdf = folder_ / (stem + ".pdf");
  write_file_atomically(svg, to_svg(figure));
  ++written_;
  if (!with_pdf_) return;
  with_pdf_ =
      run_program({"rsvg-convert", "--format=pdf", "--output=" + pdf.string(), std::filesystem::absolute(svg).string()},
                  fmt::format("{}: cannot be converted to PDF", svg.string()))
          .has_value();
  if (!with_pdf_)
    log::warning("{}: figures are written as SVG only, since rsvg-convert is not installed (Debian: librsvg2-bin)",
                 folder_.string());
}

}  // namespace metaformer::figures
