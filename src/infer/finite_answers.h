#pragma once
// An answer from numbers that are not finite would mean nothing.

#include <cstdint>

namespace metaformer {

// Errors (exit code 4): the model's numbers for `unanswered` of so many texts are not finite.
void require_finite_answers(std::int64_t unanswered, std::int64_t texts);

}  // namespace metaformer
