#pragma once
// The shell functions for sweeps.

#include <string_view>

// scripts/lib/messages.sh and experiments/lib/sweep.sh, as the build read them (cmake/EmbedFiles.cmake).
namespace metaformer::embedded {
extern const std::string_view sweep_functions;
}
