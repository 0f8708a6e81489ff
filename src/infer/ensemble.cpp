#include "infer/ensemble.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace metaformer {

void Ensemble::add(const std::string& name, const ClassificationMetrics& metrics, const ScoreSums& sums, Split split) {
  auto member = metrics.probabilities_of(sums, split);
  if (members_++ == 0) {
    classes_ = metrics.labels();
    text_digest_ = metrics.text_digest(split);
    sum_ = std::move(member);
    return;
  }
  if (metrics.labels() != classes_)
    throw Error(ExitCode::usage, fmt::format("{}: its classes are {}, those of the first run are {}", name,
                                             fmt::join(metrics.labels(), ", "), fmt::join(classes_, ", ")));
  if (metrics.text_digest(split) != text_digest_ || member.labels != sum_.labels)
    throw Error(ExitCode::usage,
                fmt::format("{}: its {} split has other texts than the first run's ({} and {}); an ensemble needs runs "
                            "of the same data and data.validation_fraction",
                            name, to_string(split), member.texts(), sum_.texts()));
  for (std::size_t i = 0; i < sum_.values.size(); ++i) sum_.values[i] += member.values[i];
}

ClassProbabilities Ensemble::mean() const {
  auto mean = sum_;
  for (auto& value : mean.values) value /= members_;
  return mean;
}

}  // namespace metaformer
