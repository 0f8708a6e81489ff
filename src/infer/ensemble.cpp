#include "infer/ensemble.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace metaformer {

void Ensemble::add(const std::string& name, const ClassificationTask& task, const ScoreSums& sums, Split split) {
  auto member = task.probabilities_of(sums, split);
  if (members_++ == 0) {
    classes_ = task.codec().labels;
    text_digest_ = task.text_digest(split);
    sum_ = std::move(member);
    return;
  }
  if (task.codec().labels != classes_)
    throw Error(ExitCode::usage, fmt::format("{}: its classes are {}, those of the first run are {}", name,
                                             fmt::join(task.codec().labels, ", "), fmt::join(classes_, ", ")));
  if (task.text_digest(split) != text_digest_ || member.labels != sum_.labels)
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
