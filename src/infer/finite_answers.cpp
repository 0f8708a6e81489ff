#include "infer/finite_answers.h"

#include <fmt/format.h>

#include "base/error.h"

namespace metaformer {

void require_finite_answers(std::int64_t unanswered, std::int64_t texts) {
  if (unanswered > 0)
    throw Error(ExitCode::diverged,
                fmt::format("the probabilities of {} of {} texts are not finite: this model diverged, or its weights "
                            "are damaged; take another checkpoint",
                            unanswered, texts));
}

}  // namespace metaformer
