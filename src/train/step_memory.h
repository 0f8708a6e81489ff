#pragma once
// What a model carries from one training step to the next.

#include <memory>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "model/sequence_model.h"

namespace metaformer {

// Of a model that remembers: one memory for every pass of a step, whose rows go on where those of the same pass of the
// step before ended.
class StepMemory {
 public:
  // Of the passes that this process computes: `slices` for each of its batches. Of a model without memory: nothing.
  StepMemory(const SequenceModel& model, std::int64_t batches, std::int64_t slices, ProcessGroup& group);

  // nullptr: nothing.
  ModelState* of_pass(std::int64_t pass) const;

  void reset();

  // What a checkpoint keeps of it: of all rows of a step, whichever pass of whichever process they belong to. To be
  // called by all processes.
  NamedTensors tensors() const;

  // Takes up what tensors() gave, and nothing else, out of `saved`, from which it is removed; passes and processes may
  // be others. Throws Error (exit code 2) for what is of another model, or not of the `rows` of a step; `source` names
  // the file.
  void take(NamedTensors& saved, std::int64_t rows, const std::string& source);

 private:
  NamedTensors join(const std::vector<NamedTensors>& parts) const;  // parts of rows, in their order
  void require_rows(const NamedTensors& whole, std::int64_t rows, const std::string& source) const;
  // The rows that belong to one pass, out of those of a whole step.
  NamedTensors part_of(const NamedTensors& whole, std::size_t pass) const;

  std::vector<std::unique_ptr<ModelState>> passes_;
  std::int64_t batches_, slices_;
  ProcessGroup* group_;
};

}  // namespace metaformer
