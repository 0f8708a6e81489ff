#include "distributed/process_group.h"

namespace metaformer {

namespace {

class Done : public PendingSum {
 public:
  void wait() override {}
};

class OneProcess : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<PendingSum> start_sum(const torch::Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<PendingSum> start_sum_on(const torch::Tensor&, int) override { return std::make_unique<Done>(); }
  void broadcast(const torch::Tensor&, int) override {}
  std::vector<std::string> gather(const std::string& bytes) override { return {bytes}; }
  bool announce_failure(const std::string&) override { return true; }
};

}  // namespace

ProcessGroup& one_process() {
  static OneProcess group;
  return group;
}

}  // namespace metaformer
