#pragma once
// The report as one HTML file that loads nothing else.

#include <string>
#include <string_view>

namespace metaformer {

// `json`: the data that the scripts in report/page read. Any text may be in it: markup in it stays text.
std::string make_page(const std::string& title, const std::string& json);

// The files of report/page and d3, as the build read them (cmake/EmbedFiles.cmake).
namespace embedded {
extern const std::string_view html, style, script, d3, d3_licence;
}

}  // namespace metaformer
