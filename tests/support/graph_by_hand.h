#pragma once
// A graph that calls the recorded work on every replay.

#include <functional>

#include "ops/device.h"

namespace metaformer {

struct GraphCounts {
  int captures = 0, replays = 0;
};

class GraphByHand : public DeviceGraph {
 public:
  explicit GraphByHand(GraphCounts& counts, bool fails = false) : counts_(counts), fails_(fails) {}
  void capture(const std::function<void()>& work) override {
    ++counts_.captures;
    TORCH_CHECK(!fails_, "this work needs the host\nand a second line");
    work_ = work;  // a recording computes nothing
  }
  void replay() override {
    ++counts_.replays;
    work_();
  }

 private:
  GraphCounts& counts_;
  bool fails_;
  std::function<void()> work_;
};

}  // namespace metaformer
