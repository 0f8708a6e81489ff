#pragma once

#include <string_view>

namespace metaformer {

// The version whose scores tests/python/compare_overlap.py compares BLEU and chrF with.
constexpr std::string_view sacrebleu_version = "2.6.0";

}  // namespace metaformer
