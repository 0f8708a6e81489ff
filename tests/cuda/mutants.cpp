// A test of the tests: makes the kernels wrong in one place at a time, a barrier left out, a wait for copies loosened,
// a bound dropped, and demands that results or memory show it. The places are found by running the kernels, so that new
// ones are covered by being there.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <vector>

#include "cuda/emulator.h"
#include "cuda/metric_case.h"

namespace metaformer {

namespace {

using cuda::MetricElement;
using cuda::MetricForm;
using emulator::Copies;
using emulator::Order;

std::vector<MetricCase> cases() {
  std::vector<MetricCase> list;
  for (const auto element : {MetricElement::bf16, MetricElement::tf32}) {
    MetricCase c;
    c.element = element;
    c.batch = 1;
    c.heads = 2;
    c.tokens = 141;
    c.width = 24;
    list.push_back(c);
    c.mask = Mask::padding;
    c.causal = false;
    c.distance = true;
    c.layout = Layout::unaligned;
    list.push_back(c);
    c.mask = Mask::none;
    c.layout = Layout::contiguous;
    c.form = MetricForm::diagonal;
    list.push_back(c);
    c.width = 40;
    c.form = MetricForm::identity;
    c.distance = false;
    list.push_back(c);
    // More tiles of tokens than parts of the metric's gradient, and a form that does not fill its last block of
    // threads.
    c.form = MetricForm::dense;
    c.batch = 40;
    c.heads = 1;
    c.tokens = 33;
    c.width = 24;
    list.push_back(c);
  }
  list.front().dropout = 0.3;
  MetricCase others = list[1];  // more keys than queries, then fewer
  others.keys = 203;
  list.push_back(others);
  others = list.front();
  others.keys = 70;
  list.push_back(others);
  MetricCase wide;  // the metric comes in parts
  wide.element = MetricElement::tf32;
  wide.batch = wide.heads = 1;
  wide.tokens = 33;
  wide.width = 104;
  list.push_back(wide);
  wide.element = MetricElement::fp32;  // rows of a block stay in shared memory
  list.push_back(wide);
  return list;
}

const std::vector<emulator::Schedule> schedules = {{Order::first_come, Copies::eager, 1},
                                                   {Order::last_come, Copies::lazy, 2},
                                                   {Order::random, Copies::random, 3},
                                                   {Order::random, Copies::lazy, 4},
                                                   {Order::first_come, Copies::lazy, 5, Order::last_come}};

std::vector<MetricResult> expected;

// Whether every case gives what it gave.
bool all_as_expected() {
  const auto list = cases();
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (const auto& schedule : schedules) {
      emulator::set_schedule(schedule);
      if (run_kernels(list[i]) != expected[i]) return false;
    }
  }
  return true;
}

// In a process of its own, which may crash.
bool is_caught(const emulator::Site& site) {
  const auto child = ::fork();
  if (child == 0) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::alarm(120);
    emulator::break_at(site);
    try {
      ::_exit(all_as_expected() ? 0 : 1);
    } catch (const std::exception&) {
      ::_exit(2);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

const char* name_of(emulator::Fault fault) {
  switch (fault) {
    case emulator::Fault::no_barrier:
      return "barrier left out";
    case emulator::Fault::loose_wait:
      return "wait loosened";
    case emulator::Fault::no_bound:
      return "bound dropped";
    case emulator::Fault::no_alignment:
      return "alignment taken for granted";
    case emulator::Fault::shifted_draw:
      return "draw shifted";
    case emulator::Fault::no_turn:
      break;
  }
  return "turn not waited for";
}

int run() {
  emulator::set_schedule({});
  for (const auto& c : cases()) expected.push_back(run_kernels(c));
  if (!all_as_expected()) {
    std::cerr << "the kernels as they are do not give the same bits under every schedule\n";
    return 1;
  }
  int survivors = 0;
  const auto sites = emulator::sites();
  for (const auto& site : sites) {
    if (is_caught(site)) continue;
    ++survivors;
    std::cerr << site.file << ":" << site.line << ": " << name_of(site.fault) << ", and no test notices\n";
  }
  std::cout << sites.size() << " faults, " << survivors << " not caught\n";
  return survivors > 0 || sites.empty() ? 1 : 0;
}

}  // namespace

}  // namespace metaformer

int main() { return metaformer::run(); }
