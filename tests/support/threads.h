#pragma once
// Sets the number of threads, for results that must not depend on it.

#include <ATen/Parallel.h>

namespace metaformer {

// Sets LibTorch's number of threads during its lifetime.
class Threads {
 public:
  explicit Threads(int count) { at::set_num_threads(count); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { at::set_num_threads(usual_); }

 private:
  int usual_ = at::get_num_threads();
};

}  // namespace metaformer
