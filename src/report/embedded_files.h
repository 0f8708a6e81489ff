#pragma once
// The files of report/page and d3, as the build read them (cmake/EmbedFiles.cmake).

#include <string_view>

namespace metaformer::embedded {

extern const std::string_view html, style, script, d3, d3_licence;

}  // namespace metaformer::embedded
