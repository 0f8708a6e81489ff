#pragma once
// How a run's model is to differ from the one that was trained. No torch.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metaformer {

struct ModelChanges {
  std::optional<std::int64_t> context;  // tokens that it sees at once, in place of model.context
  std::vector<std::string> options;     // "model.mixer.rounds=8", "data.path=b.txt": what no weight depends on
};

}  // namespace metaformer
