#include "train/saver.h"

#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "ops/named_tensors.h"

namespace metaformer {

void Saver::require_finite() const {
  if (setup_.parameters->first_not_finite(setup_.parameters->values())) throw divergence_.error("state");
  if (const auto name = setup_.optimizer->first_not_finite(); !name.empty())
    throw divergence_.error(fmt::format("optimiser's {}", name));
}

// All processes begin with the same weights and make the same updates. A machine that computes otherwise must not stay
// unnoticed.
void Saver::require_same_weights() const {
  if (group_.size() == 1) return;
  const auto values = setup_.parameters->values().cpu();
  const auto digests = group_.gather(sha256({reinterpret_cast<const char*>(values.const_data_ptr()), values.nbytes()}));
  for (std::size_t rank = 1; rank < digests.size(); ++rank)
    if (digests[rank] != digests.front())
      throw Error(ExitCode::process_lost,
                  fmt::format("the weights of rank {} differ from those of rank 0; nothing is saved", rank));
}

void Saver::save(const Progress& progress, const MetricsLog& metrics) {
  require_finite();
  require_same_weights();
  const WeightAverage::Use average(*setup_.average);
  evaluator_.adapt(progress.step);
  const auto state = setup_.state();
  if (!group_.is_first()) return;
  metrics.sync();
  save_checkpoint(run_, progress, named_state(*setup_.model), state, task_.data->codec(), keep_);
  if (!std::exchange(is_linked_, true)) link_latest(run_.path());
}

}  // namespace metaformer
