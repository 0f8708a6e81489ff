#pragma once
// The course of the learning rate.

#include <cstdint>

namespace metaformer {

class Schedule {
 public:
  virtual ~Schedule() = default;

  // The learning rate of step 0, 1, ...
  virtual double rate(std::int64_t step) const = 0;
};

}  // namespace metaformer
