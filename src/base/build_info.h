#pragma once
// Version, commit and compiler of this executable.

#include <string_view>

namespace metaformer {

struct BuildInfo {
  std::string_view version;
  std::string_view commit;  // of the source tree, or "unknown" outside a checkout
  bool dirty;               // the sources differ from that commit
  std::string_view compiler;
  std::string_view build_type;
  std::string_view source_configs;  // the source tree's configs folder
  bool cuda;                        // CUDA code is compiled in
};

const BuildInfo& build_info();

}  // namespace metaformer
