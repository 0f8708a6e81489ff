#pragma once
// What a model that remembers carries from one step to the next: for every pass of a step, the rows of which go on
// where those of the same pass of the step before ended.

#include <memory>
#include <vector>

#include "model/sequence_model.h"

namespace metaformer {

class StepMemory {
 public:
  // Of a model without memory: nothing.
  StepMemory(const SequenceModel& model, std::int64_t passes);

  // nullptr: nothing.
  ModelState* of_pass(std::int64_t pass) const;

  void reset();

  // What a checkpoint keeps of it, aliasing it.
  NamedTensors tensors() const;

  // Takes up what tensors() gave, and nothing else, out of `saved`, from which it is removed. Throws Error (exit code
  // 2) for what is of another model; `source` names the file.
  void take(NamedTensors& saved, const std::string& source);

 private:
  std::vector<std::unique_ptr<ModelState>> passes_;
};

}  // namespace metaformer
