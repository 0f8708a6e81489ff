#pragma once
// Makes the error for a training that is no longer finite.

#include <string>

#include "base/error.h"
#include "model/parameter_buffer.h"
#include "run/progress.h"

namespace metaformer {

class Divergence {
 public:
  // Keeps references, to say how things are when it happens.
  Divergence(ParameterBuffer& parameters, const Progress& progress, const double& learning_rate)
      : parameters_(parameters), progress_(progress), learning_rate_(learning_rate) {}

  // Exit code 4. `what` is not finite; names the first tensor that is not finite, too, and what to do.
  Error error(const std::string& what) const;

 private:
  ParameterBuffer& parameters_;
  const Progress& progress_;
  const double& learning_rate_;
};

}  // namespace metaformer
