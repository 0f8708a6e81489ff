// Compiled where CUDA is not.
#include "base/error.h"
#include "cuda/dropout.h"

namespace metaformer::cuda {

void dropout(const Dropout&, void*) {
  throw Error(ExitCode::failure, "dropout kernel: this executable was built without CUDA");
}

}  // namespace metaformer::cuda
