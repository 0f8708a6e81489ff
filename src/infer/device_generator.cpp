#include "infer/device_generator.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "infer/device_picker.h"

namespace metaformer {

namespace {

// Once in a process, which may generate many texts.
void report(const std::string& problem) {
  static std::atomic<bool> reported = false;
  if (!reported.exchange(true))
    log::warning("generation cannot be recorded as CUDA graphs, so the host starts its operations one by one: {}",
                 problem.substr(0, problem.find('\n')));
}

}  // namespace

bool should_record(const SequenceModel& model, std::int64_t samples) {
  // The operations of a layer take a host about 0.1 ms to start, in which a GPU computes this much in float32.
  constexpr double operations_per_layer = 2e9;
  if (model.recordable_layers() == 0) return false;
  const double tokens = static_cast<double>(samples) * static_cast<double>(model.context());
  return 2.0 * static_cast<double>(count_parameters(model).all) * tokens <=
         operations_per_layer * static_cast<double>(model.recordable_layers());
}

DeviceGenerator::DeviceGenerator(SequenceModel& model, const std::vector<std::int32_t>& window, std::int64_t samples,
                                 const SamplingOptions& options, torch::Device device, MakeGraph make_graph,
                                 const DeviceGenerationPlan& plan)
    : model_(model),
      options_(options),
      device_(device),
      make_graph_(std::move(make_graph)),
      plan_(plan),
      samples_(samples),
      context_(model.context()),
      length_(static_cast<std::int64_t>(window.size())) {
  const auto on_device = torch::TensorOptions().dtype(torch::kLong).device(device);
  const std::vector<std::int64_t> ids(window.begin(), window.end());
  const auto ids_c = torch::tensor(at::ArrayRef<std::int64_t>(ids));
  ids_bc_ = torch::zeros({samples, context_ + 1}, on_device);
  ids_bc_.narrow(1, 0, length_).copy_(ids_c);
  if (!options.never.empty()) {
    const std::vector<std::int64_t> never(options.never.begin(), options.never.end());
    never_n_ = torch::tensor(at::ArrayRef<std::int64_t>(never)).to(device);
  }
  newest_1_ = torch::full({1}, length_ - 1, on_device);
  draw_1_ = torch::zeros({1}, on_device);
  const auto longest = std::max(plan.first_chunk, plan.longest_chunk);
  uniform_tb_ = torch::zeros({longest, samples}, on_device.dtype(torch::kDouble));
  tokens_tb_ = torch::zeros({longest, samples}, on_device);
  for (auto tokens = plan.smallest_bucket; tokens < context_; tokens *= 2) buckets_.push_back({.tokens = tokens});
  buckets_.push_back({.tokens = context_});
}

std::span<const std::int32_t> DeviceGenerator::next() {
  if (read_ == ready_.size() && !failed_) generate_chunk();
  if (read_ == ready_.size()) return {};
  const auto count = static_cast<std::size_t>(samples_);
  return {ready_.data() + std::exchange(read_, read_ + count), count};
}

void DeviceGenerator::generate_chunk() {
  chunk_ = chunk_ == 0 ? plan_.first_chunk : std::min(2 * chunk_, plan_.longest_chunk);
  send_uniform_numbers();
  std::int64_t done = 0;
  try {
    if (drawn_ == 0) settle_tables();
    for (; done < chunk_; ++done) step();
  } catch (const c10::Error& error) {
    report(error.what_without_backtrace());
    failed_ = true;
  }
  drawn_ += static_cast<std::uint64_t>(done);
  const auto tokens_tb = tokens_tb_.narrow(0, 0, done).to(torch::kCPU, torch::kInt).contiguous();
  ready_.assign(tokens_tb.data_ptr<std::int32_t>(), tokens_tb.data_ptr<std::int32_t>() + tokens_tb.numel());
  read_ = 0;
}

// The numbers that the host would draw.
void DeviceGenerator::send_uniform_numbers() {
  auto uniform_tb = torch::empty({chunk_, samples_}, torch::kDouble);
  auto* number = uniform_tb.data_ptr<double>();
  for (std::int64_t t = 0; t < chunk_; ++t)
    for (std::int64_t sample = 0; sample < samples_; ++sample)
      *number++ = Rng(options_.seed, RandomPurpose::sampling, static_cast<std::uint64_t>(sample))
                      .uniform(drawn_ + static_cast<std::uint64_t>(t));
  uniform_tb_.narrow(0, 0, chunk_).copy_(uniform_tb);
  draw_1_.zero_();
}

// A model makes its tables of positions for the longest sequence that it has seen. A graph reads a table where it was
// when the graph was recorded, so they must have their final size.
void DeviceGenerator::settle_tables() { model_.evaluate(Batch{.ids_bc = ids_bc_.narrow(1, 0, context_).contiguous()}); }

void DeviceGenerator::step() {
  auto& bucket =
      *std::find_if(buckets_.begin(), buckets_.end(), [&](const Bucket& each) { return each.tokens >= length_; });
  if (bucket.steps < plan_.steps_to_warm_up) {
    compute(bucket.tokens);
  } else {
    if (bucket.graph == nullptr) record(bucket);
    bucket.graph->replay();
  }
  ++bucket.steps;
  if (++length_ > context_) cut_window();
}

void DeviceGenerator::record(Bucket& bucket) {
  std::string problem;
  auto graph = make_graph_(device_, problem);
  TORCH_CHECK(graph != nullptr, problem);
  graph->capture([this, tokens = bucket.tokens] { compute(tokens); });
  bucket.graph = std::move(graph);
}

void DeviceGenerator::compute(std::int64_t bucket) {
  const auto all_bcv = model_.evaluate(Batch{.ids_bc = ids_bc_.narrow(1, 0, bucket).contiguous()});
  const auto logits_bv = all_bcv.index_select(1, newest_1_).squeeze(1);
  const auto uniform_b = uniform_tb_.index_select(0, draw_1_).squeeze(0);
  const auto tokens_b = pick_tokens_b(logits_bv, uniform_b, options_, never_n_);
  newest_1_.add_(1);
  ids_bc_.index_copy_(1, newest_1_, tokens_b.unsqueeze(1));
  tokens_tb_.index_copy_(0, draw_1_, tokens_b.unsqueeze(0));
  draw_1_.add_(1);
}

// The host counts tokens, so it knows when; this is started between two replays.
void DeviceGenerator::cut_window() {
  const auto kept = tokens_kept(context_, options_.window);
  ids_bc_.narrow(1, 0, kept).copy_(ids_bc_.narrow(1, length_ - kept, kept).clone());
  newest_1_.fill_(kept - 1);
  length_ = kept;
}

}  // namespace metaformer
