#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace metaformer {

std::int32_t pick_token(std::span<const double> logits, const SamplingOptions& options, double uniform) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const auto x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  std::sort(order.begin(), order.end(), likelier);
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < order.size())
    order.resize(static_cast<std::size_t>(options.top_k));
  const double highest = logits[static_cast<std::size_t>(order[0])];
  std::vector<double> weights;
  for (const auto token : order)
    weights.push_back(std::exp((logits[static_cast<std::size_t>(token)] - highest) / options.temperature));
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p < 1) {
    double kept = 0;
    std::size_t count = 0;
    while (count < weights.size() && (count == 0 || kept < options.top_p * total)) kept += weights[count++];
    weights.resize(count);
    total = kept;
  }
  double remaining = uniform * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    remaining -= weights[i];
    if (remaining < 0) return order[i];
  }
  return order[weights.size() - 1];
}

bool ContextWindow::push(std::int32_t token) {
  tokens_.push_back(token);
  if (static_cast<std::int64_t>(tokens_.size()) <= context_) return false;
  const auto kept = std::max<std::int64_t>(1, context_ / 2);
  tokens_.erase(tokens_.begin(), tokens_.end() - kept);
  return true;
}

TextGenerator::TextGenerator(SequenceModel& model, const std::vector<std::int32_t>& prompt,
                             const SamplingOptions& options, torch::Device device, std::int64_t samples)
    : model_(model),
      options_(options),
      device_(device),
      parameters_(count_parameters(model).all),
      threads_(at::get_num_threads()) {
  ContextWindow window(model.config().context);
  for (const auto token : prompt) window.push(token);
  windows_.assign(static_cast<std::size_t>(samples), window);
  fresh_ = static_cast<std::int64_t>(window.tokens().size());
  if (options.cached) state_.emplace(model.config().layers, model.config().context);
}

TextGenerator::~TextGenerator() { at::set_num_threads(threads_); }

// A few tokens through a small model are over before a second thread has begun, and where another program holds a core,
// waiting for that thread costs a hundred times what it saves.
int TextGenerator::thread_count(std::size_t tokens) const {
  constexpr double operations_worth_sharing = 1e8;
  return 2.0 * static_cast<double>(parameters_) * static_cast<double>(tokens) < operations_worth_sharing ? 1 : threads_;
}

torch::Tensor TextGenerator::next_logits_bv() {
  std::vector<std::int64_t> ids;
  for (const auto& window : windows_) {
    const auto& tokens = window.tokens();
    ids.insert(ids.end(), state_ ? tokens.end() - fresh_ : tokens.begin(), tokens.end());
  }
  if (device_.is_cpu()) at::set_num_threads(thread_count(ids.size()));
  const auto ids_bc =
      torch::tensor(at::ArrayRef<std::int64_t>(ids)).view({static_cast<std::int64_t>(windows_.size()), -1});
  const auto logits_bcv = model_.forward(Batch{.ids_bc = ids_bc.to(device_)}, state_ ? &*state_ : nullptr);
  return logits_bcv.select(1, -1).to(torch::kCPU, torch::kDouble).contiguous();
}

std::vector<std::int32_t> TextGenerator::next() {
  const torch::InferenceMode inference;
  const auto logits_bv = next_logits_bv();
  const auto vocabulary = static_cast<std::size_t>(logits_bv.size(1));
  std::vector<std::int32_t> tokens;
  bool cut = false;
  for (std::size_t sample = 0; sample < windows_.size(); ++sample) {
    const std::span<const double> logits_v(logits_bv.data_ptr<double>() + sample * vocabulary, vocabulary);
    const Rng rng(options_.seed, RandomPurpose::sampling, sample);
    tokens.push_back(pick_token(logits_v, options_, rng.uniform(drawn_)));
    cut = windows_[sample].push(tokens.back());
  }
  ++drawn_;
  if (cut && state_) state_.emplace(model_.config().layers, model_.config().context);
  fresh_ = cut ? static_cast<std::int64_t>(windows_.front().tokens().size()) : 1;
  return tokens;
}

std::int64_t TextGenerator::cache_bytes() const {
  std::int64_t total = 0;
  if (state_)
    for (const auto& mixer : state_->mixers) total += mixer.bytes();
  return total;
}

std::string StopFilter::feed(const std::string& text) {
  held_ += text;
  std::size_t first_stop = std::string::npos, holds = 0;
  for (const auto& stop : stops_) {
    first_stop = std::min(first_stop, held_.find(stop));
    for (auto length = std::min(stop.size() - 1, held_.size()); length > holds; --length)
      if (held_.ends_with(stop.substr(0, length))) holds = length;
  }
  if (first_stop != std::string::npos) {
    stopped_ = true;
    auto shown = held_.substr(0, first_stop);
    held_.clear();
    return shown;
  }
  auto shown = held_.substr(0, held_.size() - holds);
  held_.erase(0, shown.size());
  return shown;
}

}  // namespace metaformer
